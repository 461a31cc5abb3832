// Work that takes as long as it should, by sleeping for the rest.
#pragma once

#include <algorithm>

#include "common/device/host/clock.h"

namespace moestro::device {

class Pacer {  // for one thread at a time
 public:
  explicit Pacer(const Clock& clock) : clock_(clock) {}

  // Returns `seconds` after `begin`, or at once if that has passed. A sleep ends late: the next one is shorter by as
  // much, so that delays do not add up.
  void SleepFrom(double begin, double seconds) {
    const double end = begin + seconds - late_;
    clock_.SleepUntil(end);
    late_ = std::clamp(clock_.Now() - end, 0.0, kMostLate);
  }

 private:
  static constexpr double kMostLate = 1e-3;  // more is not a sleep's doing

  const Clock& clock_;
  double late_ = 0;
};

}  // namespace moestro::device
