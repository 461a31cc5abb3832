// Host memory registered with a device, for fast and asynchronous copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/device/device.h"

namespace moestro::device {

// Registers slice by slice, from the beginning, on its own thread: pinning a large model takes minutes, and may be
// refused at any size. Unregistered memory is copied too, only more slowly (staging.h). A refused slice is retried: a
// finished prompt may have freed the missing memory.
class Pinning {
 public:
  // Bytes of a slice. Copies of a slice wait while it is registered, about 0.1 s at this size.
  static constexpr int64_t kSliceBytes = int64_t{256} << 20;
  // Minimum seconds from a refusal to the next try; doubles after each further refusal.
  static constexpr double kFirstRetrySeconds = 1;
  static constexpr double kLastRetrySeconds = 60;

  struct Options {
    HostAccess access = HostAccess::kReads;
    int64_t limit_bytes = 0;  // registers at most this many bytes; 0: all
  };
  // Registers [data, data + bytes); `data` is page-aligned. The device and the memory must outlive it. The thread calls
  // on_change when all is registered, and when a slice is first refused: with the registered bytes, and the reason why
  // there are no more.
  Pinning(Device& device, const uint8_t* data, int64_t bytes, const Options& options,
          std::function<void(int64_t pinned, const absl::Status& status)> on_change);
  // Stops after the current slice and unregisters everything: no copy may be in flight.
  ~Pinning();

  // Retries a refused slice if enough time has passed on the device's clock. Thread-safe; does not wait.
  void Retry();

  // Thread-safe.
  int64_t registered_bytes() const { return registered_; }

 private:
  void Pin(const uint8_t* data, int64_t bytes, HostAccess access);
  bool stopped() {
    MutexLock lock(mutex_);
    return stopped_;
  }
  // Waits for Retry, or for the end.
  void AwaitRetry(double seconds);

  Device& device_;
  const std::function<void(int64_t pinned, const absl::Status& status)> on_change_;
  std::vector<Registration> slices_;  // used only by the thread
  std::atomic<int64_t> registered_ = 0;
  Mutex mutex_;
  Condition changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;    // and not retried since
  double retry_after_ ABSL_GUARDED_BY(mutex_) = 0;  // on the device's clock
  std::thread thread_;
};

}  // namespace moestro::device
