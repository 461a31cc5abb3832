// The pages of a prompt as its ranks get at them: through a gate that can be shut. A rank that hangs cannot be stopped,
// only left behind; when it wakes up, the pages belong to somebody else.
#pragma once

#include <cstdint>
#include <shared_mutex>
#include <vector>

#include "absl/status/status.h"
#include "common/base/math.h"
#include "common/kv/pages.h"

namespace moestro {

class PageGate {  // thread-safe
 public:
  // Of no tokens where nothing is stored: simulated runs. The pages stay mapped until the gate is shut.
  explicit PageGate(const KvPages& pages);

  // A copy of the list: good for sizes, also after the gate was shut.
  const KvPages& pages() const { return pages_; }

  // Copies one layer's KV of the positions, BF16 [positions, kv_dim], from or to the pages. CANCELLED when it is shut.
  absl::Status Read(int64_t layer, IndexRange positions, uint8_t* to) const;
  absl::Status Write(int64_t layer, IndexRange positions, const uint8_t* from) const;

  // Returns when nobody is inside, and nobody ever will be.
  void Shut();

 private:
  template <typename Copy>
  absl::Status ForPages(int64_t layer, IndexRange positions, Copy copy) const;

  const std::vector<uint32_t> numbers_;
  const KvPages pages_;
  mutable std::shared_mutex mutex_;
  bool shut_ = false;  // guarded by mutex_
};

}  // namespace moestro
