// Which host memory is registered, piece by piece: CUDA refuses a copy that lies partly in a registered piece and
// partly outside, or in two of them. Registered is what the process has registered, for all of its GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"

namespace moestro::device {

class RegisteredRanges {  // thread-safe
 public:
  // The process's.
  static RegisteredRanges& Get();

  // Calls `add`, and if it succeeds [data, data + bytes) is registered. No ForParts runs meanwhile. If that very piece
  // is registered for that access there is nothing to call: it stays so until all who added it have removed it.
  absl::Status Add(const uint8_t* data, int64_t bytes, HostAccess access, absl::FunctionRef<absl::Status()> add);
  // Calls `remove` for the last who added it; `data` is what Add was given.
  void Remove(const uint8_t* data, absl::FunctionRef<void()> remove);

  // Calls part(offset, bytes) for the parts of [data, data + bytes) in order, each of which lies in one range or in
  // none. Ends with the first error.
  absl::Status ForParts(const uint8_t* data, int64_t bytes,
                        absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes)> part) const;

 private:
  struct Range {
    uintptr_t end = 0;
    HostAccess access = HostAccess::kReads;
    int64_t users = 0;
  };
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Range> ranges_;  // by beginning; guarded by mutex_
};

}  // namespace moestro::device
