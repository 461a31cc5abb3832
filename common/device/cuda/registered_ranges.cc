#include "common/device/cuda/registered_ranges.h"

#include <algorithm>
#include <mutex>

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::device {

absl::Status RegisteredRanges::Add(const uint8_t* data, int64_t bytes, absl::FunctionRef<absl::Status()> add) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const Range range{begin, begin + static_cast<uintptr_t>(bytes)};
  {
    std::unique_lock lock(mutex_);
    changing_.push_back(range);
  }
  absl::Status status = add();
  EndChange(range, status.ok());
  return status;
}

void RegisteredRanges::Remove(const uint8_t* data, absl::FunctionRef<void()> remove) {
  Range range;
  {
    std::unique_lock lock(mutex_);
    const auto found = ranges_.find(reinterpret_cast<uintptr_t>(data));
    MOE_CHECK(found != ranges_.end());
    range = {found->first, found->second};
    ranges_.erase(found);
    changing_.push_back(range);
  }
  remove();
  EndChange(range, false);
}

void RegisteredRanges::EndChange(const Range& range, bool registered) {
  std::unique_lock lock(mutex_);
  changing_.erase(std::ranges::find(changing_, range));
  if (registered) ranges_[range.begin] = range.end;
  changed_.notify_all();
}

absl::Status RegisteredRanges::ForParts(const uint8_t* data, int64_t bytes,
                                        absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes)> part) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  std::shared_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::ranges::none_of(changing_, [&](const Range& range) { return begin < range.end && range.begin < end; });
  });
  for (uintptr_t at = begin; at < end;) {
    const auto after = ranges_.upper_bound(at);  // the first range that begins later
    const bool inside = after != ranges_.begin() && at < std::prev(after)->second;
    uintptr_t part_end = end;
    if (inside) {
      part_end = std::min(end, std::prev(after)->second);
    } else if (after != ranges_.end()) {
      part_end = std::min(end, after->first);
    }
    MOE_RETURN_IF_ERROR(part(static_cast<int64_t>(at - begin), static_cast<int64_t>(part_end - at)));
    at = part_end;
  }
  return absl::OkStatus();
}

}  // namespace moestro::device
