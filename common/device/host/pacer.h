// Makes work take a given time by sleeping for the rest.
#pragma once

#include <algorithm>

#include "common/device/host/clock.h"

namespace moestro::device {

class Pacer {  // for one thread at a time
 public:
  explicit Pacer(const Clock& clock) : clock_(clock) {}

  // Returns `seconds` after `begin`, or at once if that has passed. Sleeps end late, so the next one is shortened by
  // the delay: delays do not add up.
  void SleepFrom(double begin, double seconds) {
    const double end = begin + seconds - late_;
    clock_.SleepUntil(end);
    late_ = std::clamp(clock_.Now() - end, 0.0, kMostLate);
  }

 private:
  static constexpr double kMostLate = 1e-3;  // a larger delay is not caused by a sleep

  const Clock& clock_;
  double late_ = 0;
};

}  // namespace moestro::device
