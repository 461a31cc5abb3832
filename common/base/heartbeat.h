// Heartbeats of a thread that does a role's work. A thread that has work and does not beat for long is hung.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

namespace moestro {

// One thread beats, or several that share one piece of work; any thread may read. Thread-safe.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;  // does not count while the machine is suspended

  explicit Heartbeat(std::string thread) : thread_(std::move(thread)) {}

  // The thread has work and just made progress. Cheap enough to call between two layers.
  void Beat(Clock::time_point now = Clock::now()) { beaten_.store(now, std::memory_order_relaxed); }
  // The thread has no work until the next Beat.
  void Rest() { beaten_.store(kResting, std::memory_order_relaxed); }

  // How long a thread that has work has made no progress; 0 at rest, which is the initial state.
  Clock::duration Silence(Clock::time_point now = Clock::now()) const {
    const Clock::time_point beaten = beaten_.load(std::memory_order_relaxed);
    return beaten == kResting || beaten > now ? Clock::duration::zero() : now - beaten;
  }

  const std::string& thread() const { return thread_; }  // name in the log

 private:
  static constexpr Clock::time_point kResting = Clock::time_point::min();

  const std::string thread_;
  std::atomic<Clock::time_point> beaten_{kResting};
};

// The thread has work during this object's lifetime.
class BeatingScope {
 public:
  explicit BeatingScope(Heartbeat& heartbeat) : heartbeat_(heartbeat) { heartbeat_.Beat(); }
  ~BeatingScope() { heartbeat_.Rest(); }
  BeatingScope(const BeatingScope&) = delete;
  BeatingScope& operator=(const BeatingScope&) = delete;

 private:
  Heartbeat& heartbeat_;
};

}  // namespace moestro
