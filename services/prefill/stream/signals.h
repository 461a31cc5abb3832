// How the three threads of a streamed run tell each other how far they are: the host halves of its event pairs.
//
//   staged    loader → model     stagings whose copies are on the load stream, their ON events recorded
//   launched  model → unloader   steps that are on the compute stream, their OFF events recorded
//   released  unloader → all     steps that are done, the memory of their modules free
//
// Each only grows. A thread first learns here that an event has been recorded, then lets its stream wait for it. The
// first failure ends every wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/device/device.h"

namespace moestro::prefill {

class RunSignals {  // thread-safe
 public:
  enum Counter { kStaged, kLaunched, kReleased, kCounters };

  RunSignals(device::Device& device, int64_t stagings, int64_t steps);

  // One more. The time of the calling thread goes with it.
  void Add(Counter counter);
  // Until the counter is above `index`. The status of the failure if there is or was one. `poll`, if given, is asked
  // every few milliseconds; its error becomes the run's failure.
  using Poll = absl::FunctionRef<absl::Status()>;
  absl::Status WaitFor(Counter counter, int64_t index);
  absl::Status WaitFor(Counter counter, int64_t index, Poll poll);
  int64_t count(Counter counter) const;

  // Only the first failure counts. REQUIRES: not OK.
  void Fail(const absl::Status& status);
  absl::Status status() const;
  // True after a failure: work that is still on a stream may be skipped.
  const std::atomic<bool>& stopped() const { return stopped_; }

 private:
  static constexpr std::chrono::milliseconds kPoll{10};

  device::Device& device_;
  mutable Mutex mutex_;
  Condition changed_;
  int64_t counts_[kCounters] ABSL_GUARDED_BY(mutex_) = {};
  std::vector<double> seconds_[kCounters] ABSL_GUARDED_BY(mutex_);  // of each count
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stopped_ = false;
};

}  // namespace moestro::prefill
