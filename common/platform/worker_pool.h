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
    int threads = 1;  // 1 or more; counts the calling thread of Run: a pool of 1 starts none
    int domains = 1;  // 1..threads: groups of workers, of sizes that differ by at most one
    // Keep each domain's workers on the CPUs of that domain (MakeNumaDomains). Not done for one domain, nor for a
    // domain with more workers than CPUs.
    bool pin = true;
    // CPUs that are for other processes most of the time: one more worker for each, on these CPUs only (of its domain,
    // as above), inactive until SetActiveThreads.
    std::vector<int> lent_cpus = {};
  };
  // Throws std::system_error, which CatchExceptions makes RESOURCE_EXHAUSTED, when the system has not so many threads.
  explicit WorkerPool(const Options& options);
  explicit WorkerPool(int threads) : WorkerPool(Options{.threads = threads}) {}  // in one domain
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const;      // all workers, active or not: there is scratch memory for so many
  int own_threads() const;  // Options::threads: all but those on lent CPUs, which have the highest numbers
  int domains() const;
  // Of worker 0..threads()-1. Worker 0 is the thread that calls Run; it works for domain 0.
  int DomainOf(int worker) const;

  // From the next run on, workers 0..count-1 take part and the others sleep. domains() <= count <=
  // threads(); own_threads() at first. Not during a run.
  void SetActiveThreads(int count);
  int active_threads() const;

  // Calls work(index, worker) once for every index in [0, count), worker in [0, active_threads()); returns when all are
  // done. Which worker takes which index is not fixed, so work must give the same result on any of them. Indices are
  // taken in ascending order, and whoever takes several does them in that order: so an index may wait for lower ones.
  // Neither locks nor allocates. Not reentrant: one Run or RunPerDomain at a time per pool. count < 2^32.
  void Run(int64_t count, absl::FunctionRef<void(int64_t index, int worker)> work);

  // For each domain d, calls work(d, index, worker) once for every index in [0, count(d)), on workers of domain d only:
  // nobody helps another domain, so that each reads its own memory. Otherwise as Run. All domains progress at the same
  // time: if the indices of every domain come in phases, an index may wait for those of earlier phases in any domain.
  void RunPerDomain(absl::FunctionRef<int64_t(int domain)> count,
                    absl::FunctionRef<void(int domain, int64_t index, int worker)> work);

  // While the result lives, the calling thread stays on the CPUs of domain 0 if the pool is pinned there: for a series
  // of runs by a thread that does other things between them.
  [[nodiscard]] ScopedAffinity PinCaller() const;

 private:
  void EndThreads();

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moestro
