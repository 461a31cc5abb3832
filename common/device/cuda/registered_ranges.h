// Which host memory is registered, piece by piece: CUDA refuses a copy that lies partly in a registered piece and
// partly outside, or in two of them.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace moestro::device {

class RegisteredRanges {  // thread-safe
 public:
  // Calls `add`, and if it succeeds [data, data + bytes) is registered. No ForParts runs meanwhile.
  absl::Status Add(const uint8_t* data, int64_t bytes, absl::FunctionRef<absl::Status()> add);
  // Calls `remove`; `data` is what Add was given.
  void Remove(const uint8_t* data, absl::FunctionRef<void()> remove);

  // Calls part(offset, bytes) for the parts of [data, data + bytes) in order, each of which lies in one range or in
  // none. Ends with the first error.
  absl::Status ForParts(const uint8_t* data, int64_t bytes,
                        absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes)> part) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, uintptr_t> ranges_;  // begin to end; guarded by mutex_
};

}  // namespace moestro::device
