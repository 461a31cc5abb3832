// std::mutex and what goes with it, as Clang's thread-safety analysis knows them: a member says by ABSL_GUARDED_BY
// which mutex guards it, a function by ABSL_EXCLUSIVE_LOCKS_REQUIRED which one its caller holds, and
// tests/check_thread_safety.py has Clang check both. The predicate of a timed wait says so too, for it is a function:
// [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; }
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace moestro {

class ABSL_LOCKABLE Mutex {
 public:
  // Tells the analysis what it cannot see: that the caller holds it, under another name.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex from construction to destruction, but for between unlock and lock.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// std::condition_variable.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  template <typename Duration>
  void wait_for(MutexLock& lock, Duration timeout) {
    condition_.wait_for(lock.lock_, timeout);
  }
  // False: the time is over, and the predicate still false.
  template <typename Duration, typename Predicate>
  bool wait_for(MutexLock& lock, Duration timeout, Predicate predicate) {
    return condition_.wait_for(lock.lock_, timeout, predicate);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace moestro
