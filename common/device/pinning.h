// Host memory registered with a device, so that copies from and to it are fast and wait for nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/device/device.h"

namespace moestro::device {

// Slice by slice, from the beginning, on a thread of its own: pinning a large model takes minutes, and may be refused
// at any size. What is not registered (yet) is copied all the same, only slower (staging.h). What is refused is tried
// again: the memory that it lacked may be free after a prompt.
class Pinning {
 public:
  // Bytes of a slice: copies of the slice wait while it is registered, about 0.1 s for this size.
  static constexpr int64_t kSliceBytes = int64_t{256} << 20;
  // Seconds from a refusal to the next try at the earliest, twice as many after each further one.
  static constexpr double kFirstRetrySeconds = 1;
  static constexpr double kLastRetrySeconds = 60;

  struct Options {
    HostAccess access = HostAccess::kReads;
    int64_t limit_bytes = 0;  // registers so much at most; 0: all
  };
  // Registers [data, data + bytes); `data` is on a page boundary. The device, and the memory, outlive it. on_change is
  // called on the thread when all is registered, and when a slice is refused where none was before: how many bytes,
  // and why not more.
  Pinning(Device& device, const uint8_t* data, int64_t bytes, const Options& options,
          std::function<void(int64_t pinned, const absl::Status& status)> on_change);
  // Ends it after the slice that is being registered, and takes all registrations back: no copy may be under way.
  ~Pinning();

  // Tries again what was refused, if that was long enough ago on the device's clock. Thread-safe, waits for nothing.
  void Retry();

 private:
  void Pin(const uint8_t* data, int64_t bytes, HostAccess access);
  bool stopped() {
    MutexLock lock(mutex_);
    return stopped_;
  }
  // Until Retry, or the end.
  void AwaitRetry(double seconds);

  Device& device_;
  const std::function<void(int64_t pinned, const absl::Status& status)> on_change_;
  std::vector<Registration> slices_;  // the thread's
  Mutex mutex_;
  Condition changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;    // and not tried again since
  double retry_after_ ABSL_GUARDED_BY(mutex_) = 0;  // on the device's clock
  std::thread thread_;
};

}  // namespace moestro::device
