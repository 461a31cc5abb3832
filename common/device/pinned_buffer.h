// Host memory for copies from and to the device.
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
  // Zeroed. The device must outlive it. If the system refuses to pin it, copies are slower.
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
  // Occupies whole pages: registration works on pages, and each page may be registered only once.
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
  Registration registration_;  // declared after the memory: unregistered before it is freed
};

}  // namespace moestro::device
