// The ranges of host memory that are registered. CUDA refuses a copy that crosses the boundary of a registered range.
// The ranges are the process's, for all of its GPUs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"

namespace moestro::device {

class RegisteredRanges {  // thread-safe
 public:
  // The instance of this process.
  static RegisteredRanges& Get();

  // Calls `add`; on success [data, data + bytes) is registered. Blocks ForParts on any of these bytes, but on no
  // others, since registering takes long. If this very range is registered for this access, `add` is not called. The
  // range stays until every caller that added it has removed it.
  absl::Status Add(const uint8_t* data, int64_t bytes, HostAccess access, absl::FunctionRef<absl::Status()> add);
  // Calls `remove` when the last caller that added it removes it; `data` is the one passed to Add. Blocks ForParts as
  // Add does.
  void Remove(const uint8_t* data, absl::FunctionRef<void()> remove);

  int64_t bytes() const;  // registered now
  // The state of [data, data + bytes) now. A range that is still being registered does not count.
  HostPart PartAt(const uint8_t* data, int64_t bytes) const;

  // Calls part(offset, bytes) for the parts of [data, data + bytes) in order; each part is in one range or in none.
  // Stops at the first error.
  absl::Status ForParts(const uint8_t* data, int64_t bytes,
                        absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes)> part) const;

 private:
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool Overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
    friend bool operator==(const Range&, const Range&) = default;
  };
  struct Registered {
    uintptr_t end = 0;
    HostAccess access = HostAccess::kReads;
    int64_t users = 0;
  };
  // The leading part of [begin, end) that is in one range or in none. REQUIRES mutex_.
  HostPart FirstPart(const Range& range) const;
  // Waits until no registration or unregistration overlaps the range. Returns with the lock held.
  template <typename Lock>
  void WaitForChanges(const Range& range, Lock& lock) const;
  // Ends a change that was begun by adding to changing_. REQUIRES mutex_.
  void EndChange(const Range& range);

  mutable std::shared_mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::map<uintptr_t, Registered> ranges_;  // by beginning; guarded by mutex_
  std::vector<Range> changing_;             // being registered or unregistered; guarded by mutex_
};

}  // namespace moestro::device
