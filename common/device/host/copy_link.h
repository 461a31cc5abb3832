// One direction of the bus between host and device, with its bandwidth.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/base/mutex.h"
#include "common/device/host/clock.h"
#include "common/device/host/pacer.h"

namespace moestro::device {

class CopyLink {  // thread-safe: copies take turns
 public:
  // bytes_per_second 0: memory speed.
  CopyLink(const Clock& clock, double bytes_per_second)
      : clock_(clock), bytes_per_second_(bytes_per_second), pacer_(clock) {}

  void Copy(uint8_t* to, const uint8_t* from, int64_t bytes) {
    MutexLock lock(mutex_);
    const double begin = clock_.Now();
    std::memcpy(to, from, static_cast<size_t>(bytes));
    if (bytes_per_second_ > 0) pacer_.SleepFrom(begin, static_cast<double>(bytes) / bytes_per_second_);
  }

 private:
  const Clock& clock_;
  const double bytes_per_second_;
  Mutex mutex_;
  Pacer pacer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::device
