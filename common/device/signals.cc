#include "common/device/signals.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::device {

RunSignals::RunSignals(Device& device, std::span<const int64_t> most) : device_(device), counters_(most.size()) {
  for (size_t i = 0; i < most.size(); ++i) counters_[i].seconds.resize(static_cast<size_t>(most[i]));
}

void RunSignals::Add(size_t counter) {
  Counter& of = counters_[counter];
  const int64_t count = of.count.load(std::memory_order_relaxed);
  of.seconds[static_cast<size_t>(count)] = device_.Now();
  // This store and load, and those of a thread that begins to wait, are in one order: one of both sees the other.
  of.count.store(count + 1);
  if (count + 1 < of.awaited.load()) return;
  {
    MutexLock lock(mutex_);  // such a thread holds it until it waits
    of.awaited = kNobody;
  }
  of.reached.notify_all();
}

absl::Status RunSignals::WaitFor(size_t counter, int64_t index) {
  return WaitFor(counter, index, [] { return absl::OkStatus(); });
}

absl::Status RunSignals::WaitFor(size_t counter, int64_t index, Poll poll) {
  Counter& of = counters_[counter];
  if (of.count <= index || stopped_) {
    MutexLock lock(mutex_);
    const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (!status_.ok()) return true;
      of.awaited = std::min(of.awaited.load(), index + 1);
      return of.count > index;
    };
    while (!of.reached.wait_for(lock, kPoll, over)) {
      lock.unlock();
      if (const absl::Status status = poll(); !status.ok()) Fail(status);
      lock.lock();
    }
    if (!status_.ok()) return status_;
  }
  device_.AdvanceTo(of.seconds[static_cast<size_t>(index)]);
  return absl::OkStatus();
}

int64_t RunSignals::count(size_t counter) const { return counters_[counter].count; }

void RunSignals::Fail(const absl::Status& status) {
  MOE_CHECK(!status.ok());
  MutexLock lock(mutex_);
  if (status_.ok()) status_ = status;
  stopped_ = true;
  for (Counter& each : counters_) each.reached.notify_all();
}

absl::Status RunSignals::status() const {
  if (!stopped_) return absl::OkStatus();
  MutexLock lock(mutex_);
  return status_;
}

}  // namespace moestro::device
