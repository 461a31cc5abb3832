// Which host memory is registered, piece by piece: CUDA refuses a copy that lies partly in a registered piece and
// partly outside, or in two of them. Registered is what the process has registered, for all of its GPUs.
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
  // The process's.
  static RegisteredRanges& Get();

  // Calls `add`, and if it succeeds [data, data + bytes) is registered. No ForParts of any of these bytes runs
  // meanwhile; those of others go on, for registering takes long. If that very piece is registered for that access
  // there is nothing to call: it stays so until all who added it have removed it.
  absl::Status Add(const uint8_t* data, int64_t bytes, HostAccess access, absl::FunctionRef<absl::Status()> add);
  // Calls `remove` for the last who added it; `data` is what Add was given. ForParts as for Add.
  void Remove(const uint8_t* data, absl::FunctionRef<void()> remove);

  int64_t bytes() const;  // that are registered now
  // Of [data, data + bytes), now: what is being registered is not yet.
  HostPart PartAt(const uint8_t* data, int64_t bytes) const;

  // Calls part(offset, bytes) for the parts of [data, data + bytes) in order, each of which lies in one range or in
  // none. Ends with the first error.
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
  // The part of [begin, end) from its beginning that lies in one range or in none. REQUIRES mutex_.
  HostPart FirstPart(const Range& range) const;
  // Nothing of the range is being registered, or no longer. The lock is held when it returns.
  template <typename Lock>
  void WaitForChanges(const Range& range, Lock& lock) const;
  // What was begun by adding to changing_ is done. REQUIRES mutex_.
  void EndChange(const Range& range);

  mutable std::shared_mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::map<uintptr_t, Registered> ranges_;  // by beginning; guarded by mutex_
  std::vector<Range> changing_;             // being registered, or no longer; guarded by mutex_
};

}  // namespace moestro::device
