// The pages of a prompt as its ranks get at them: until they are revoked. A rank that hangs cannot be stopped,
// only left behind; when it wakes up, the pages belong to somebody else.
#pragma once

#include <cstdint>
#include <shared_mutex>
#include <vector>

#include "absl/status/status.h"
#include "common/base/math.h"
#include "common/kv/pages.h"

namespace moestro::prefill {

class RevocablePages {  // thread-safe
 public:
  // Of no tokens where nothing is stored: simulated runs. The pages stay mapped until Revoke.
  explicit RevocablePages(const kv::KvPages& pages);

  // A copy of the list: good for sizes, also after Revoke.
  const kv::KvPages& pages() const { return pages_; }

  // Copies one layer's KV of the positions, BF16 [positions, kv_dim], from or to the pages. CANCELLED after Revoke.
  absl::Status Read(int64_t layer, IndexRange positions, uint8_t* to) const;
  absl::Status Write(int64_t layer, IndexRange positions, const uint8_t* from) const;

  // Returns when nobody is inside, and nobody ever will be.
  void Revoke();

 private:
  const std::vector<uint32_t> numbers_;
  const kv::KvPages pages_;
  mutable std::shared_mutex mutex_;
  bool revoked_ = false;  // guarded by mutex_
};

}  // namespace moestro::prefill
