// Ends leases that were reserved but neither started nor filled in time, so that a router that hangs cannot keep pages.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

namespace moestro {

class LeaseWatch {
  struct Waiting;

 public:
  using Clock = std::chrono::steady_clock;

  explicit LeaseWatch(Clock::duration timeout) : timeout_(timeout) {}

  // One reserved lease: from construction until Started() or destruction.
  class Entry {
   public:
    // valid_tokens: of the lease, now; that a prompt takes longer than the time-out is no reason to end it as long as
    // they grow.
    Entry(LeaseWatch& watch, Clock::time_point now, std::function<int64_t()> valid_tokens, std::function<void()> expire)
        : watch_(watch) {
      const int64_t valid = valid_tokens();
      std::lock_guard lock(watch_.mutex_);
      place_ = watch_.waiting_.insert(watch_.waiting_.end(),
                                      {now + watch_.timeout_, valid, std::move(valid_tokens), std::move(expire)});
      watched_ = true;
    }
    ~Entry() { Started(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    void Started() {
      std::lock_guard lock(watch_.mutex_);
      if (watched_) watch_.waiting_.erase(place_);
      watched_ = false;
    }

   private:
    friend class LeaseWatch;
    LeaseWatch& watch_;
    std::list<Waiting>::iterator place_;
    bool watched_ = false;
  };

  // Calls `expire` of every entry whose time-out has passed without another valid token, once; gives how many. The
  // entry stays until its owner ends it.
  int Expire(Clock::time_point now) {
    std::lock_guard lock(mutex_);
    int expired = 0;
    for (Waiting& waiting : waiting_) {
      if (waiting.deadline > now) continue;
      const int64_t before = std::exchange(waiting.seen_tokens, waiting.valid_tokens());
      if (waiting.seen_tokens > before) {
        waiting.deadline = now + timeout_;
        continue;
      }
      waiting.deadline = Clock::time_point::max();
      waiting.expire();
      ++expired;
    }
    return expired;
  }

 private:
  struct Waiting {
    Clock::time_point deadline;
    int64_t seen_tokens = 0;
    std::function<int64_t()> valid_tokens;
    std::function<void()> expire;
  };

  const Clock::duration timeout_;
  std::mutex mutex_;
  std::list<Waiting> waiting_;  // guarded by mutex_
};

}  // namespace moestro
