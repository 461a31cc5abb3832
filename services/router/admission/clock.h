// The clock of the request logic. Tests replace it, so that waits take no time.
#pragma once

#include <chrono>
#include <thread>

namespace moestro::router {

class RequestClock {  // thread-safe
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~RequestClock() = default;
  virtual TimePoint Now() = 0;
  virtual void SleepFor(Duration duration) = 0;
};

class SteadyClock final : public RequestClock {
 public:
  TimePoint Now() override { return std::chrono::steady_clock::now(); }
  void SleepFor(Duration duration) override { std::this_thread::sleep_for(duration); }
};

inline double Seconds(RequestClock::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace moestro::router
