// A fixed set of threads that run index ranges together. Idle workers sleep.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace moestro {

class WorkerPool {
 public:
  // `threads` >= 1 counts the calling thread of Run: a pool of 1 starts none.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const;

  // Calls work(index, worker) once for every index in [0, count), worker in [0, threads()); returns when all are done.
  // Which worker takes which index is not fixed, so work must give the same result on any of them. Not reentrant: one
  // Run at a time per pool.
  void Run(int64_t count, absl::FunctionRef<void(int64_t index, int worker)> work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moestro
