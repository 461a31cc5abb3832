// Host memory registered with a device, so that copies from and to it are fast and wait for nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/device/device.h"

namespace moestro::device {

// Slice by slice, from the beginning, on a thread of its own: pinning a large model takes minutes, and may be refused
// at any size. What is not registered (yet) is copied all the same, only slower.
class Pinning {
 public:
  // Bytes of a slice: copies of the slice wait while it is registered, about 0.1 s for this size.
  static constexpr int64_t kSliceBytes = int64_t{256} << 20;

  struct Options {
    HostAccess access = HostAccess::kReads;
    int64_t limit_bytes = 0;  // registers so much at most; 0: all
  };
  // Registers [data, data + bytes); `data` is on a page boundary. The device, and the memory, outlive it. on_done is
  // called on the thread at the end: how many bytes, and why not more.
  Pinning(Device& device, const uint8_t* data, int64_t bytes, const Options& options,
          std::function<void(int64_t pinned, const absl::Status& status)> on_done);
  // Ends it after the slice that is being registered, and takes all registrations back: no copy may be under way.
  ~Pinning();

 private:
  void Pin(const uint8_t* data, int64_t bytes, HostAccess access);

  Device& device_;
  const std::function<void(int64_t pinned, const absl::Status& status)> on_done_;
  std::vector<Registration> slices_;  // the thread's
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace moestro::device
