// Device memory: owned allocations, and a limit on their total.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace moestro::device {

// Calls a function in its destructor. Movable.
class Release {
 public:
  Release() = default;
  explicit Release(std::function<void()> release) : release_(std::move(release)) {}
  Release(Release&& other) noexcept : release_(std::exchange(other.release_, nullptr)) {}
  Release& operator=(Release&& other) noexcept {
    std::swap(release_, other.release_);
    return *this;
  }
  ~Release() {
    if (release_) release_();
  }

 private:
  std::function<void()> release_;
};

// Owns device memory. The device must outlive it, and no stream may still use it at destruction.
class Memory {
 public:
  Memory() = default;
  Memory(uint8_t* data, int64_t bytes, Release release) : data_(data), bytes_(bytes), release_(std::move(release)) {}

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  Release release_;
};

// Host memory stays registered during its lifetime.
using Registration = Release;

// Counts bytes against a limit. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  int64_t used() const;
  int64_t free() const { return limit_ - used(); }
  // RESOURCE_EXHAUSTED: "expert ring: 100 bytes of device memory wanted, 20 of 120 are free".
  absl::Status Take(int64_t bytes, const std::string& what);
  void Give(int64_t bytes);

 private:
  const int64_t limit_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moestro::device
