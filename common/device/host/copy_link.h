// One direction of the bus between host and device, with the bandwidth of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "common/device/host/clock.h"

namespace moestro::device {

class CopyLink {  // thread-safe: copies take turns
 public:
  // bytes_per_second 0: as fast as memory is.
  CopyLink(const Clock& clock, double bytes_per_second) : clock_(clock), bytes_per_second_(bytes_per_second) {}

  void Copy(uint8_t* to, const uint8_t* from, int64_t bytes) {
    std::lock_guard lock(mutex_);
    const double begin = std::max(free_at_, clock_.Now() - kSlack);
    std::memcpy(to, from, static_cast<size_t>(bytes));
    if (bytes_per_second_ <= 0) return;
    free_at_ = begin + static_cast<double>(bytes) / bytes_per_second_;
    clock_.SleepUntil(free_at_);
  }

 private:
  // A sleep ends late by about so much. The next copy begins when the last one should have ended, so that delays do not
  // add up; but a link that was idle for longer gains nothing from it.
  static constexpr double kSlack = 1e-3;

  const Clock& clock_;
  const double bytes_per_second_;
  std::mutex mutex_;
  double free_at_ = 0;  // guarded by mutex_
};

}  // namespace moestro::device
