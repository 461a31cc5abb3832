// A fixed set of threads that run index ranges together, by NUMA domain. Idle workers sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/platform/numa.h"

namespace moestro {

class WorkerPool {
 public:
  struct Options {
    int threads = 1;  // 1 or more; includes the thread that calls Run: a pool of 1 starts none
    int domains = 1;  // 1..threads: groups of workers, whose sizes differ by at most one
    // Keep each domain's workers on the CPUs of that domain (MakeNumaDomains). Ignored for a single domain, and for a
    // domain with more workers than CPUs.
    bool pin = true;
    // CPUs that other processes use most of the time. Each adds one worker, confined to these CPUs (of its domain, as
    // above) and inactive until SetActiveThreads.
    std::vector<int> lent_cpus = {};
  };
  // Throws std::system_error if the system cannot start the threads; CatchExceptions makes it RESOURCE_EXHAUSTED.
  explicit WorkerPool(const Options& options);
  explicit WorkerPool(int threads) : WorkerPool(Options{.threads = threads}) {}  // in one domain
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const;      // all workers, active or not: the number of scratch memories
  int own_threads() const;  // Options::threads: all workers except those on lent CPUs, which have the highest numbers
  int domains() const;
  // The domain of worker 0..threads()-1. Worker 0 is the thread that calls Run; it belongs to domain 0.
  int DomainOf(int worker) const;

  // From the next run, workers 0..count-1 take part and the others sleep. domains() <= count <= threads(); initially
  // own_threads(). Not during a run.
  void SetActiveThreads(int count);
  // From the next SetActiveThreads, no more than this take part, whatever it asks for, but one of each domain at least.
  // Initially all.
  void LimitActiveThreads(int most);
  int active_threads() const;

  // Calls work(index, worker) once for every index in [0, count), worker in [0, active_threads()); returns when all are
  // done. Any worker may take any index, so work must give the same result on all of them. Indices are taken in
  // ascending order, and a worker does its indices in that order. So an index may wait for lower ones. Neither locks
  // nor allocates. Not reentrant: one Run or RunPerDomain at a time per pool. count < 2^32.
  void Run(int64_t count, absl::FunctionRef<void(int64_t index, int worker)> work);

  // For each domain d, calls work(d, index, worker) once for every index in [0, count(d)), only on workers of domain d.
  // Workers never help another domain, so each reads its own memory. Otherwise as Run. All domains progress
  // concurrently: if the indices of every domain come in phases, an index may wait for earlier phases of any domain.
  void RunPerDomain(absl::FunctionRef<int64_t(int domain)> count,
                    absl::FunctionRef<void(int domain, int64_t index, int worker)> work);

  // During the result's lifetime, the calling thread stays on the CPUs of domain 0, if the pool is pinned. For a series
  // of runs by a thread that does other work in between.
  [[nodiscard]] ScopedAffinity PinCaller() const;

 private:
  void Activate(int count);
  void EndThreads();

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moestro
