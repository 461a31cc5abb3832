// The progress of the load, shared with every thread that waits for it. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/mutex.h"

namespace moestro::store {

class LoadState {
 public:
  enum class Phase { kLoading, kReady, kFailed };
  struct Snapshot {
    Phase phase = Phase::kLoading;
    int64_t reserved_bytes = 0;  // of the segment's memory; comes before loading
    int64_t segment_bytes = 0;   // to be reserved
    int64_t loaded_bytes = 0;
    int64_t total_bytes = 0;
    std::string segment;   // when ready
    std::string error;     // when failed
    bool closing = false;  // the process is shutting down: end all waits
  };

  Snapshot Get() const {
    MutexLock lock(mutex_);
    return snapshot_;
  }
  void Reserved(int64_t reserved_bytes, int64_t segment_bytes) {
    MutexLock lock(mutex_);
    snapshot_.reserved_bytes = reserved_bytes;
    snapshot_.segment_bytes = segment_bytes;
  }
  void Progress(int64_t loaded_bytes, int64_t total_bytes) {
    MutexLock lock(mutex_);
    snapshot_.loaded_bytes = loaded_bytes;
    snapshot_.total_bytes = total_bytes;
  }
  void Ready(const std::string& segment, int64_t bytes) {
    MutexLock lock(mutex_);
    snapshot_.phase = Phase::kReady;
    snapshot_.segment = segment;
    snapshot_.loaded_bytes = snapshot_.total_bytes = bytes;
    changed_.notify_all();
  }
  void Failed(const std::string& error) {
    MutexLock lock(mutex_);
    snapshot_.phase = Phase::kFailed;
    snapshot_.error = error;
    changed_.notify_all();
  }
  void Close() {
    MutexLock lock(mutex_);
    snapshot_.closing = true;
    changed_.notify_all();
  }

  // Blocks until the phase changes or the process closes, at most `timeout`.
  void WaitForChange(const Snapshot& seen, std::chrono::milliseconds timeout) {
    MutexLock lock(mutex_);
    changed_.wait_for(lock, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return snapshot_.phase != seen.phase || snapshot_.closing;
    });
  }

 private:
  mutable Mutex mutex_;
  Condition changed_;
  Snapshot snapshot_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::store
