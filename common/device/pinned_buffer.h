// Host memory that copies from and to the device go through.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/device/device.h"

namespace moestro::device {

template <typename T>
class PinnedBuffer {
 public:
  // Zeroed. The device outlives it. Where the system does not let so much be pinned, copies are slower.
  static absl::StatusOr<PinnedBuffer> Create(Device& device, int64_t count) {
    PinnedBuffer buffer(count);
    auto registered = device.Register(reinterpret_cast<const uint8_t*>(buffer.get()),
                                      count * static_cast<int64_t>(sizeof(T)), HostAccess::kReadsAndWrites);
    if (registered.ok()) {
      buffer.registration_ = *std::move(registered);
      buffer.pinned_ = true;
    } else if (!absl::IsResourceExhausted(registered.status()) && !absl::IsPermissionDenied(registered.status())) {
      return registered.status();
    }
    return buffer;
  }

  T* get() const { return static_cast<T*>(memory_.get()); }
  bool pinned() const { return pinned_; }

 private:
  // Whole pages of its own: memory is registered by pages, and each of them once.
  static constexpr int64_t kPageBytes = 4096;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  explicit PinnedBuffer(int64_t count) {
    const auto bytes = static_cast<size_t>(RoundUp(count * static_cast<int64_t>(sizeof(T)), kPageBytes));
    memory_.reset(std::aligned_alloc(kPageBytes, bytes));
    MOE_CHECK(memory_ != nullptr);
    std::memset(memory_.get(), 0, bytes);
  }

  std::unique_ptr<void, Free> memory_;
  bool pinned_ = false;
  Registration registration_;  // after the memory: let go of before that is freed
};

}  // namespace moestro::device
