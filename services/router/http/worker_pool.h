// Threads for requests, which block: as many as there are requests, up to a limit. Thread-safe.
#pragma once

#include <functional>
#include <list>
#include <thread>

#include "common/base/mutex.h"

namespace moestro::router {

class WorkerPool {
 public:
  explicit WorkerPool(size_t limit) : limit_(limit) {}
  ~WorkerPool();  // waits for the work that runs
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `work` on another thread at once. False: all threads are busy, or the system gives no more.
  bool Run(std::function<void()> work);

 private:
  void Work();

  const size_t limit_;
  Mutex mutex_;
  Condition changed_;
  std::list<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);  // never longer than there are idle threads
  std::list<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace moestro::router
