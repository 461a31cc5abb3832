// How the threads of a run, each of which puts one kind of work on a device, tell each other how far they are: the host
// halves of events. A thread first learns here that an event has been recorded, then lets its stream wait for it.
//
// Each count only grows. The first failure ends every wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/device/device.h"

namespace moestro::device {

class RunSignals {  // thread-safe
 public:
  // A counter for each element, which is the most that it counts. The device must outlive it.
  RunSignals(Device& device, std::span<const int64_t> most);

  // One more. The time of the calling thread goes with it. A counter is that of one thread.
  void Add(size_t counter);
  // Until the counter is above `index`. The status of the failure if there is or was one. `poll`, if given, is asked
  // every few milliseconds; its error becomes the run's failure.
  using Poll = absl::FunctionRef<absl::Status()>;
  absl::Status WaitFor(size_t counter, int64_t index);
  absl::Status WaitFor(size_t counter, int64_t index, Poll poll);
  int64_t count(size_t counter) const;

  // Only the first failure counts. REQUIRES: not OK.
  void Fail(const absl::Status& status);
  absl::Status status() const;
  // True after a failure: work that is still on a stream may be skipped.
  const std::atomic<bool>& stopped() const { return stopped_; }

 private:
  static constexpr std::chrono::milliseconds kPoll{10};

  // A simulated run signals a million times a second: so neither a signal that nobody waits for nor a wait that is over
  // takes the mutex, and a signal wakes only threads that it lets go on.
  struct Counter {
    std::atomic<int64_t> count = 0;
    std::vector<double> seconds;             // of each count; written before it
    std::atomic<int64_t> awaited = kNobody;  // the least count that lets a waiting thread go on
    Condition reached;
  };
  static constexpr int64_t kNobody = std::numeric_limits<int64_t>::max();

  Device& device_;
  mutable Mutex mutex_;
  std::vector<Counter> counters_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stopped_ = false;
};

}  // namespace moestro::device
