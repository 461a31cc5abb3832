#include "common/device/memory.h"

#include "absl/strings/str_format.h"

namespace moestro::device {

int64_t MemoryBudget::used() const {
  MutexLock lock(mutex_);
  return used_;
}

absl::Status MemoryBudget::Take(int64_t bytes, const std::string& what) {
  MutexLock lock(mutex_);
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrFormat("%s: %d bytes of device memory", what, bytes));
  if (bytes > limit_ - used_) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d bytes of device memory wanted, %d of %d are free", what,
                                                        bytes, limit_ - used_, limit_));
  }
  used_ += bytes;
  return absl::OkStatus();
}

void MemoryBudget::Give(int64_t bytes) {
  MutexLock lock(mutex_);
  used_ -= bytes;
}

}  // namespace moestro::device
