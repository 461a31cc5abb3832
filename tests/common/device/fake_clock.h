// Time that passes only by sleeping.
#pragma once

#include <algorithm>
#include <mutex>

#include "common/device/host/clock.h"

namespace moestro::device {

class FakeClock final : public Clock {
 public:
  double Now() const override {
    std::lock_guard lock(mutex_);
    return seconds_;
  }
  void SleepUntil(double seconds) const override {
    std::lock_guard lock(mutex_);
    if (seconds > seconds_) seconds_ = seconds + late_;
  }
  // From now on sleeps end this much too late.
  void set_late(double late) {
    std::lock_guard lock(mutex_);
    late_ = late;
  }

 private:
  mutable std::mutex mutex_;
  mutable double seconds_ = 100;  // guarded by mutex_
  double late_ = 0;               // guarded by mutex_
};

}  // namespace moestro::device
