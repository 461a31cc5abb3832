#include "services/router/access/token_bucket.h"

#include <algorithm>

namespace moestro::router {
namespace {

constexpr double kSecondsPerMinute = 60;

}  // namespace

void TokenBucket::Fill(RequestClock::TimePoint now) {
  level_ = std::min(limits_.burst, level_ + Seconds(now - at_) * limits_.per_minute / kSecondsPerMinute);
  at_ = now;
}

void TokenBucket::SetLimits(const Limits& limits, RequestClock::TimePoint now) {
  Fill(now);
  limits_ = limits;
  level_ = std::min(level_, limits_.burst);
}

std::optional<RequestClock::Duration> TokenBucket::Take(double amount, RequestClock::TimePoint now) {
  Fill(now);
  if (amount <= level_) {
    level_ -= amount;
    return std::nullopt;
  }
  const std::chrono::duration<double> wait((amount - level_) * kSecondsPerMinute / limits_.per_minute);
  return std::chrono::ceil<RequestClock::Duration>(wait);
}

void TokenBucket::Charge(double amount, RequestClock::TimePoint now) {
  Fill(now);
  level_ -= amount;
}

void TokenBucket::PutBack(double amount, RequestClock::TimePoint now) {
  Fill(now);
  level_ = std::min(limits_.burst, level_ + amount);
}

}  // namespace moestro::router
