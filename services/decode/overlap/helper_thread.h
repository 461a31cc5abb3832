// A thread that does one thing at a time for another.
#pragma once

#include <optional>
#include <thread>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"

namespace moestro::decode {

class HelperThread {  // Start and Wait in turns, by one thread
 public:
  HelperThread() : thread_([this] { Loop(); }) {}
  ~HelperThread() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  // `work` lives until Wait returns.
  void Start(absl::FunctionRef<void()> work) {
    MutexLock lock(mutex_);
    work_.emplace(work);
    changed_.notify_all();
  }
  // Until the work is done.
  void Wait() {
    MutexLock lock(mutex_);
    while (work_) changed_.wait(lock);
  }

 private:
  void Loop() {
    MutexLock lock(mutex_);
    while (true) {
      while (!stopping_ && !work_) changed_.wait(lock);
      if (stopping_) return;
      const absl::FunctionRef<void()> work = *work_;
      lock.unlock();
      work();
      lock.lock();
      work_.reset();
      changed_.notify_all();
    }
  }

  Mutex mutex_;
  Condition changed_;
  std::optional<absl::FunctionRef<void()>> work_ ABSL_GUARDED_BY(mutex_);  // none: nothing to do
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moestro::decode
