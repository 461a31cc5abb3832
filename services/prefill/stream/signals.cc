#include "services/prefill/stream/signals.h"

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::prefill {

RunSignals::RunSignals(device::Device& device, int64_t stagings, int64_t steps) : device_(device) {
  seconds_[kStaged].resize(stagings);
  seconds_[kLaunched].resize(steps);
  seconds_[kReleased].resize(steps);
}

void RunSignals::Add(Counter counter) {
  const double now = device_.Now();
  MutexLock lock(mutex_);
  seconds_[counter][counts_[counter]++] = now;
  changed_.notify_all();
}

absl::Status RunSignals::WaitFor(Counter counter, int64_t index) {
  return WaitFor(counter, index, [] { return absl::OkStatus(); });
}

absl::Status RunSignals::WaitFor(Counter counter, int64_t index, Poll poll) {
  double seconds = 0;
  {
    MutexLock lock(mutex_);
    const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !status_.ok() || counts_[counter] > index; };
    while (!changed_.wait_for(lock, kPoll, over)) {
      lock.unlock();
      if (const absl::Status status = poll(); !status.ok()) Fail(status);
      lock.lock();
    }
    if (!status_.ok()) return status_;
    seconds = seconds_[counter][index];
  }
  device_.AdvanceTo(seconds);
  return absl::OkStatus();
}

int64_t RunSignals::count(Counter counter) const {
  MutexLock lock(mutex_);
  return counts_[counter];
}

void RunSignals::Fail(const absl::Status& status) {
  MOE_CHECK(!status.ok());
  MutexLock lock(mutex_);
  if (status_.ok()) status_ = status;
  stopped_ = true;
  changed_.notify_all();
}

absl::Status RunSignals::status() const {
  MutexLock lock(mutex_);
  return status_;
}

}  // namespace moestro::prefill
