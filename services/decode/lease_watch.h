// Ends leases that were reserved but neither started nor renewed in time, so that a hanging router or prefill cannot
// keep pages. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <utility>

#include "common/base/mutex.h"

namespace moestro::decode {

class LeaseWatch {
  struct Waiting;

 public:
  using Clock = std::chrono::steady_clock;

  explicit LeaseWatch(Clock::duration timeout) : timeout_(timeout) {}

  // One reserved lease: from construction until Started() or destruction.
  class Entry {
   public:
    // `renewals` returns the lease's current count of renewals. While it changes, the lease is not ended, even if a
    // prompt takes longer than the timeout.
    Entry(LeaseWatch& watch, Clock::time_point now, std::function<uint32_t()> renewals, std::function<void()> expire)
        : watch_(watch) {
      const uint32_t seen = renewals();
      MutexLock lock(watch_.mutex_);
      place_ = watch_.waiting_.insert(watch_.waiting_.end(),
                                      {now + watch_.timeout_, seen, std::move(renewals), std::move(expire)});
      watched_ = true;
    }
    ~Entry() { Started(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    void Started() {
      MutexLock lock(watch_.mutex_);
      if (watched_) watch_.waiting_.erase(place_);
      watched_ = false;
    }

   private:
    friend class LeaseWatch;
    LeaseWatch& watch_;
    std::list<Waiting>::iterator place_;
    bool watched_ = false;
  };

  // Checks all entries. Calls `expire` once for each that was not renewed within the timeout, and returns how many
  // those were. Call it several times within a timeout. An entry stays until its owner ends it.
  int Expire(Clock::time_point now) {
    MutexLock lock(mutex_);
    int expired = 0;
    for (Waiting& waiting : waiting_) {
      if (waiting.deadline == kExpired) continue;
      const uint32_t renewals = waiting.renewals();
      if (std::exchange(waiting.seen, renewals) != renewals) waiting.deadline = now + timeout_;
      if (waiting.deadline > now) continue;
      waiting.deadline = kExpired;
      waiting.expire();
      ++expired;
    }
    return expired;
  }

 private:
  static constexpr Clock::time_point kExpired = Clock::time_point::max();
  struct Waiting {
    Clock::time_point deadline;
    uint32_t seen = 0;
    std::function<uint32_t()> renewals;
    std::function<void()> expire;
  };

  const Clock::duration timeout_;
  Mutex mutex_;
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::decode
