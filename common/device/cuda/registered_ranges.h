// Which host memory is registered, piece by piece: CUDA refuses a copy that lies partly in a registered piece and
// partly outside, or in two of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace moestro::device {

class RegisteredRanges {  // thread-safe
 public:
  // Calls `add`, and if it succeeds [data, data + bytes) is registered. No ForParts of any of these bytes runs
  // meanwhile; those of others go on, for registering takes long.
  absl::Status Add(const uint8_t* data, int64_t bytes, absl::FunctionRef<absl::Status()> add);
  // Calls `remove`; `data` is what Add was given. ForParts as for Add.
  void Remove(const uint8_t* data, absl::FunctionRef<void()> remove);

  // Calls part(offset, bytes) for the parts of [data, data + bytes) in order, each of which lies in one range or in
  // none. Ends with the first error.
  absl::Status ForParts(const uint8_t* data, int64_t bytes,
                        absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes)> part) const;

 private:
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  // What was begun by adding to changing_ is done: the range is registered now, or not.
  void EndChange(const Range& range, bool registered);

  mutable std::shared_mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::map<uintptr_t, uintptr_t> ranges_;  // registered: begin to end; guarded by mutex_
  std::vector<Range> changing_;            // being registered, or no longer; guarded by mutex_
};

}  // namespace moestro::device
