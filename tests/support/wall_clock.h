// Steps of the system's clock, as of NTP or of a machine that resumes, within the process of a test.
#pragma once

#include <chrono>

namespace moestro {

// While it lives, the system's clock of this process is ahead by so much. The steady clock is not.
class WallClockStep {
 public:
  explicit WallClockStep(std::chrono::seconds step);
  ~WallClockStep();
  WallClockStep(const WallClockStep&) = delete;
  WallClockStep& operator=(const WallClockStep&) = delete;
};

}  // namespace moestro
