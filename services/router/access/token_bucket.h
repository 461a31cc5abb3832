// A token bucket: holds up to `burst`, owes what was taken beyond, and fills at a constant rate. Has no clock of its
// own.
#pragma once

#include <optional>

#include "services/router/admission/clock.h"

namespace moestro::router {

class TokenBucket {
 public:
  struct Limits {
    double per_minute = 0;  // > 0
    double burst = 0;       // > 0
  };

  // Full. `now` of all calls ascends.
  TokenBucket(const Limits& limits, RequestClock::TimePoint now) : limits_(limits), level_(limits.burst), at_(now) {}

  // Keeps what the bucket holds, up to the new burst.
  void SetLimits(const Limits& limits, RequestClock::TimePoint now);

  // Takes `amount` if the bucket holds it, and returns nullopt. Otherwise takes nothing and returns how long it takes
  // until the bucket holds it, if nobody takes anything meanwhile. REQUIRES: amount <= burst.
  std::optional<RequestClock::Duration> Take(double amount, RequestClock::TimePoint now);

  // Takes `amount` even if the bucket does not hold it.
  void Charge(double amount, RequestClock::TimePoint now);

  // Puts back what was taken and not used.
  void PutBack(double amount, RequestClock::TimePoint now);

  double burst() const { return limits_.burst; }

 private:
  void Fill(RequestClock::TimePoint now);

  Limits limits_;
  double level_;
  RequestClock::TimePoint at_;  // when `level_` was right
};

}  // namespace moestro::router
