// std::mutex and its companions with annotations for Clang's thread-safety analysis. ABSL_GUARDED_BY names the mutex
// that guards a member. ABSL_EXCLUSIVE_LOCKS_REQUIRED names the mutex that a function's caller holds.
// tests/check_thread_safety.py has Clang check both. The predicate of a timed wait is a function, so it is annotated
// too:
// [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; }
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace moestro {

class ABSL_LOCKABLE Mutex {
 public:
  // Tells the analysis that the caller holds the mutex under another name, which the analysis cannot see.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex from construction to destruction, except between unlock and lock.
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

// std::condition_variable for Mutex.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  template <typename Duration>
  void wait_for(MutexLock& lock, Duration timeout) {
    condition_.wait_for(lock.lock_, timeout);
  }
  // Returns false on timeout, with the predicate still false.
  template <typename Duration, typename Predicate>
  bool wait_for(MutexLock& lock, Duration timeout, Predicate predicate) {
    return condition_.wait_for(lock.lock_, timeout, predicate);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace moestro
