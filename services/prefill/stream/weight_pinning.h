// Weights registered with a device, so that copies from them are fast and wait for nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/device/device.h"

namespace moestro {

// Slice by slice, from the beginning, on a thread of its own: pinning a large model takes minutes, and may be refused
// at any size. What is not registered (yet) is copied all the same, only slower.
class WeightPinning {
 public:
  // Bytes of a slice: copies wait while one is registered, about 0.1 s for this size.
  static constexpr int64_t kSliceBytes = int64_t{256} << 20;

  // At most `limit` bytes of [data, data + bytes); 0: all. `data` is on a page boundary. The device, and the memory,
  // outlive it. on_done is called on the thread at the end: how many bytes, and why not more.
  WeightPinning(device::Device& device, const uint8_t* data, int64_t bytes, int64_t limit,
                std::function<void(int64_t pinned, const absl::Status& status)> on_done);
  // Ends it after the slice that is being registered, and takes all registrations back.
  ~WeightPinning();

 private:
  void Pin(const uint8_t* data, int64_t bytes);

  device::Device& device_;
  const std::function<void(int64_t pinned, const absl::Status& status)> on_done_;
  std::vector<device::Registration> slices_;  // the thread's
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace moestro
