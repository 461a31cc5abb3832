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

template <typename Lock>
void RegisteredRanges::WaitForChanges(const Range& range, Lock& lock) const {
  changed_.wait(lock, [&] {
    return std::ranges::none_of(changing_, [&](const Range& changing) { return changing.Overlaps(range); });
  });
}

absl::Status RegisteredRanges::Add(const uint8_t* data, int64_t bytes, HostAccess access,
                                   absl::FunctionRef<absl::Status()> add) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const Range range{begin, begin + static_cast<uintptr_t>(bytes)};
  std::unique_lock lock(mutex_);
  WaitForChanges(range, lock);
  if (const auto same = ranges_.find(begin);
      same != ranges_.end() && same->second.end == range.end && same->second.access == access) {
    ++same->second.users;
    return absl::OkStatus();
  }
  changing_.push_back(range);
  lock.unlock();
  absl::Status status = add();
  lock.lock();
  if (status.ok()) ranges_[begin] = {range.end, access, 1};
  EndChange(range);
  return status;
}

void RegisteredRanges::Remove(const uint8_t* data, absl::FunctionRef<void()> remove) {
  std::unique_lock lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(data));
  MOE_CHECK(found != ranges_.end());
  if (--found->second.users > 0) return;
  const Range range{found->first, found->second.end};
  ranges_.erase(found);
  changing_.push_back(range);
  lock.unlock();
  remove();
  lock.lock();
  EndChange(range);
}

void RegisteredRanges::EndChange(const Range& range) {
  changing_.erase(std::ranges::find(changing_, range));
  changed_.notify_all();
}

int64_t RegisteredRanges::bytes() const {
  std::shared_lock lock(mutex_);
  int64_t sum = 0;
  for (const auto& [begin, range] : ranges_) sum += static_cast<int64_t>(range.end - begin);
  return sum;
}

HostPart RegisteredRanges::PartAt(const uint8_t* data, int64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::shared_lock lock(mutex_);
  return FirstPart({begin, begin + static_cast<uintptr_t>(bytes)});
}

HostPart RegisteredRanges::FirstPart(const Range& range) const {
  const auto after = ranges_.upper_bound(range.begin);  // the first range that begins later
  const bool registered = after != ranges_.begin() && range.begin < std::prev(after)->second.end;
  uintptr_t end = range.end;
  if (registered) {
    end = std::min(end, std::prev(after)->second.end);
  } else if (after != ranges_.end()) {
    end = std::min(end, after->first);
  }
  return {static_cast<int64_t>(end - range.begin), registered};
}

absl::Status RegisteredRanges::ForParts(const uint8_t* data, int64_t bytes,
                                        absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes)> part) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  std::shared_lock lock(mutex_);
  WaitForChanges({begin, end}, lock);
  for (uintptr_t at = begin; at < end;) {
    const int64_t part_bytes = FirstPart({at, end}).bytes;
    MOE_RETURN_IF_ERROR(part(static_cast<int64_t>(at - begin), part_bytes));
    at += static_cast<uintptr_t>(part_bytes);
  }
  return absl::OkStatus();
}

}  // namespace moestro::device
