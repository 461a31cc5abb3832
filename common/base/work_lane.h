// A thread for work that its callers must not do themselves.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace moestro {

// One thread, first come, first served. Thread-safe.
class WorkLane {
 public:
  // Niceness of work that may take seconds. A thread of it takes a tenth of a CPU from one that computes steadily, and
  // the whole of an idle one.
  static constexpr int kBackground = 10;

  // `niceness` is added to that of the process. A lane with one is never real-time, whatever the process is. Throws
  // std::system_error if there can be no thread.
  explicit WorkLane(int niceness = 0);
  // Waits for the work that has begun, and drops the rest. REQUIRES: nobody is in Run.
  ~WorkLane();

  // Does not wait. `work` must not throw, and must end soon when the owner of the lane wants to destroy it.
  void Post(std::function<void()> work);

  // Waits until `work` is done, and returns its status, or that of its exception (exceptions.h). Before it begins,
  // calls `check` every 20 ms; an error of that is returned, and `work` is not run. Work that takes long calls its own
  // check.
  absl::Status Run(absl::FunctionRef<absl::Status()> work, const std::function<absl::Status()>& check);

 private:
  struct Job {
    std::function<void()> work;
    bool begun = false;
    bool done = false;
  };
  std::shared_ptr<Job> Add(std::function<void()> work);
  void Loop();

  const int niceness_;
  Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);  // that have not begun
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moestro
