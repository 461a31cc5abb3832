// Ends leases that were reserved but never started in time, so that a router that hangs cannot keep pages. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <mutex>

namespace moestro {

class LeaseWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // One reserved lease: from construction until Started() or destruction.
  class Entry {
   public:
    Entry(LeaseWatch& watch, Clock::time_point deadline, std::function<void()> expire) : watch_(watch) {
      std::lock_guard lock(watch_.mutex_);
      place_ = watch_.waiting_.insert(watch_.waiting_.end(), {deadline, std::move(expire)});
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
    std::list<std::pair<Clock::time_point, std::function<void()>>>::iterator place_;
    bool watched_ = false;
  };

  // Calls `expire` of every entry whose deadline is not after `now`, once; gives how many. The entry stays until its
  // owner ends it.
  int Expire(Clock::time_point now) {
    std::lock_guard lock(mutex_);
    int expired = 0;
    for (auto& [deadline, expire] : waiting_) {
      if (deadline > now) continue;
      deadline = Clock::time_point::max();
      expire();
      ++expired;
    }
    return expired;
  }

 private:
  std::mutex mutex_;
  std::list<std::pair<Clock::time_point, std::function<void()>>> waiting_;  // guarded by mutex_
};

}  // namespace moestro
