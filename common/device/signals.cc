#include "common/device/signals.h"

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::device {

RunSignals::RunSignals(Device& device, std::span<const int64_t> most) : device_(device), counters_(most.size()) {
  for (size_t i = 0; i < most.size(); ++i) counters_[i].seconds.resize(static_cast<size_t>(most[i]));
}

void RunSignals::Add(size_t counter) {
  const double now = device_.Now();
  MutexLock lock(mutex_);
  Counter& of = counters_[counter];
  of.seconds[static_cast<size_t>(of.count++)] = now;
  changed_.notify_all();
}

absl::Status RunSignals::WaitFor(size_t counter, int64_t index) {
  return WaitFor(counter, index, [] { return absl::OkStatus(); });
}

absl::Status RunSignals::WaitFor(size_t counter, int64_t index, Poll poll) {
  double seconds = 0;
  {
    MutexLock lock(mutex_);
    const Counter& of = counters_[counter];
    const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !status_.ok() || of.count > index; };
    while (!changed_.wait_for(lock, kPoll, over)) {
      lock.unlock();
      if (const absl::Status status = poll(); !status.ok()) Fail(status);
      lock.lock();
    }
    if (!status_.ok()) return status_;
    seconds = of.seconds[static_cast<size_t>(index)];
  }
  device_.AdvanceTo(seconds);
  return absl::OkStatus();
}

int64_t RunSignals::count(size_t counter) const {
  MutexLock lock(mutex_);
  return counters_[counter].count;
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

}  // namespace moestro::device
