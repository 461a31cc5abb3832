// The clock of the request logic. Tests replace it, so that waits take no time.
#pragma once

#include <chrono>
#include <thread>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"

namespace moestro::router {

class RequestClock {  // thread-safe
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~RequestClock() = default;
  virtual TimePoint Now() = 0;
  virtual void SleepFor(Duration duration) = 0;
  // Returns when `condition` was notified and `ready` is true, or after `duration`. REQUIRES: `lock` holds the mutex
  // that guards what `ready` reads; it is free meanwhile.
  virtual void WaitFor(Condition& condition, MutexLock& lock, Duration duration, absl::FunctionRef<bool()> ready) = 0;
};

class SteadyClock final : public RequestClock {
 public:
  TimePoint Now() override { return std::chrono::steady_clock::now(); }
  void SleepFor(Duration duration) override { std::this_thread::sleep_for(duration); }
  void WaitFor(Condition& condition, MutexLock& lock, Duration duration, absl::FunctionRef<bool()> ready) override {
    condition.wait_for(lock, duration, ready);
  }
};

inline double Seconds(RequestClock::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace moestro::router
