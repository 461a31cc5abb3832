// When a client's call passed the points between which the router itself works: what it adds to a request. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

namespace moestro::router {

class CallTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // The whole request has arrived. Set it before other threads use the call; without it nothing is noted.
  void SetReceived(Clock::time_point when) { received_ = when; }

  // Decode is about to be asked for pages, after `waited` in the line. Only the first time counts.
  void NoteAsked(Clock::duration waited, Clock::time_point now = Clock::now()) {
    if (!received_) return;
    int64_t none = kNone;
    asked_after_.compare_exchange_strong(none, (now - *received_ - waited).count());
  }
  // From the request's arrival to that moment, without the time in the line.
  std::optional<Clock::duration> asked_after() const {
    const int64_t after = asked_after_;
    return after == kNone ? std::nullopt : std::optional(Clock::duration(after));
  }

  // A role has sent a token.
  void NoteToken(Clock::time_point now = Clock::now()) { token_ = now.time_since_epoch().count(); }
  // When the last token came, of which nobody has taken the time yet.
  std::optional<Clock::time_point> TakeToken() {
    const int64_t token = token_.exchange(kNone);
    return token == kNone ? std::nullopt : std::optional(Clock::time_point(Clock::duration(token)));
  }

 private:
  static constexpr int64_t kNone = -1;

  std::optional<Clock::time_point> received_;
  std::atomic<int64_t> asked_after_{kNone};
  std::atomic<int64_t> token_{kNone};
};

}  // namespace moestro::router
