// A thread that does one thing at a time for another.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/functional/function_ref.h"

namespace moestro {

class HelperThread {  // Start and Wait in turns, by one thread
 public:
  HelperThread() : thread_([this] { Loop(); }) {}
  ~HelperThread() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  // `work` lives until Wait returns.
  void Start(absl::FunctionRef<void()> work) {
    std::lock_guard lock(mutex_);
    work_.emplace(work);
    changed_.notify_all();
  }
  // Until the work is done.
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !work_; });
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || work_; });
      if (stopping_) return;
      lock.unlock();
      (*work_)();
      lock.lock();
      work_.reset();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::FunctionRef<void()>> work_;  // guarded by mutex_, but called without it; none: nothing to do
  bool stopping_ = false;                          // guarded by mutex_
  std::thread thread_;
};

}  // namespace moestro
