// Signs of life of a thread that does a role's work: one that has work and gives none for long hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

namespace moestro {

// Beaten by the thread that works (or by several that do one piece of work), looked at by any other. Thread-safe.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;  // does not count while the machine is suspended

  explicit Heartbeat(std::string thread) : thread_(std::move(thread)) {}

  // The thread has work, and has just gone on with it. Cheap enough to be called between two layers.
  void Beat(Clock::time_point now = Clock::now()) { beaten_.store(now, std::memory_order_relaxed); }
  // It has no work until the next Beat.
  void Rest() { beaten_.store(kResting, std::memory_order_relaxed); }

  // For how long a thread that has work has not gone on; 0 at rest, as at first.
  Clock::duration Silence(Clock::time_point now = Clock::now()) const {
    const Clock::time_point beaten = beaten_.load(std::memory_order_relaxed);
    return beaten == kResting || beaten > now ? Clock::duration::zero() : now - beaten;
  }

  const std::string& thread() const { return thread_; }  // as the log calls it

 private:
  static constexpr Clock::time_point kResting = Clock::time_point::min();

  const std::string thread_;
  std::atomic<Clock::time_point> beaten_{kResting};
};

// The thread has work while this lives.
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
