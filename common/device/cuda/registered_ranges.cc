#include "common/device/cuda/registered_ranges.h"

#include <algorithm>
#include <mutex>

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::device {

RegisteredRanges& RegisteredRanges::Get() {
  static RegisteredRanges ranges;
  return ranges;
}

absl::Status RegisteredRanges::Add(const uint8_t* data, int64_t bytes, HostAccess access,
                                   absl::FunctionRef<absl::Status()> add) {
  std::unique_lock lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  if (const auto same = ranges_.find(begin);
      same != ranges_.end() && same->second.end == end && same->second.access == access) {
    ++same->second.users;
    return absl::OkStatus();
  }
  MOE_RETURN_IF_ERROR(add());
  ranges_[begin] = {end, access, 1};
  return absl::OkStatus();
}

void RegisteredRanges::Remove(const uint8_t* data, absl::FunctionRef<void()> remove) {
  std::unique_lock lock(mutex_);
  const auto range = ranges_.find(reinterpret_cast<uintptr_t>(data));
  MOE_CHECK(range != ranges_.end());
  if (--range->second.users > 0) return;
  ranges_.erase(range);
  remove();
}

absl::Status RegisteredRanges::ForParts(const uint8_t* data, int64_t bytes,
                                        absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes)> part) const {
  std::shared_lock lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  for (uintptr_t at = begin; at < end;) {
    const auto after = ranges_.upper_bound(at);  // the first range that begins later
    const bool inside = after != ranges_.begin() && at < std::prev(after)->second.end;
    uintptr_t part_end = end;
    if (inside) {
      part_end = std::min(end, std::prev(after)->second.end);
    } else if (after != ranges_.end()) {
      part_end = std::min(end, after->first);
    }
    MOE_RETURN_IF_ERROR(part(static_cast<int64_t>(at - begin), static_cast<int64_t>(part_end - at)));
    at = part_end;
  }
  return absl::OkStatus();
}

}  // namespace moestro::device
