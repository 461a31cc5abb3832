// Time of the host device, replaceable so that tests need not wait.
#pragma once

namespace moestro::device {

class Clock {  // thread-safe
 public:
  virtual ~Clock() = default;
  virtual double Now() const = 0;                     // seconds, monotonic
  virtual void SleepUntil(double seconds) const = 0;  // returns at once if the time has passed
};

// std::chrono::steady_clock.
const Clock& SteadyClock();

}  // namespace moestro::device
