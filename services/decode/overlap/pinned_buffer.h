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

namespace moestro {

template <typename T>
class PinnedBuffer {
 public:
  // Zeroed. The device outlives it. Where the system does not let so much be pinned, copies are slower.
  static absl::StatusOr<PinnedBuffer> Create(device::Device& device, int64_t count) {
    PinnedBuffer buffer(count);
    auto registered = device.Register(reinterpret_cast<const uint8_t*>(buffer.get()),
                                      count * static_cast<int64_t>(sizeof(T)), device::HostAccess::kReadsAndWrites);
    if (registered.ok()) {
      buffer.registration_ = *std::move(registered);
    } else if (!absl::IsResourceExhausted(registered.status())) {
      return registered.status();
    }
    return buffer;
  }

  T* get() const { return static_cast<T*>(memory_.get()); }

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
  device::Registration registration_;  // after the memory: let go of before that is freed
};

}  // namespace moestro
