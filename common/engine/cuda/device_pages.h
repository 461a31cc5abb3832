// The KV pool's pages on the device: page i of the pool is page i here, of all layers, in rows.
//
// A sequence's pages are taken over when it first comes: one copy a page, and for packed pages one kernel. After that
// the device writes what its steps add, here and (cuda_decode.h) in the pool, where a sequence can go on without the
// device. What a lease holds never changes, and a page that is given back comes with another lease, so a lease and a
// number of its tokens tell what the device has. A page that several leases share is copied for each of them: the same
// bytes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/device/device.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kv/pages.h"

namespace moestro::engine {

class DevicePages {
 public:
  // memory: of geometry.page_count pages. REQUIRES: a geometry of rows.
  DevicePages(device::Memory memory, const kv::KvGeometry& geometry)
      : memory_(std::move(memory)), geometry_(geometry) {}

  // Puts copies on the stream of what the device lacks of the sequence's first `tokens` tokens. packed: on the device,
  // the stream's own memory for a page as the pool has it; only for packed pages. INTERNAL for pages that are none of
  // the pool's. Thread-safe.
  absl::Status CopyMissingPages(const kv::KvPages& pages, int64_t tokens, uint8_t* packed, device::Stream& stream);
  // The device has the lease's first `tokens` tokens. Thread-safe.
  void MarkResident(uint64_t lease, int64_t tokens);

  // One layer; `list`, on the device, has the pages of sequences.
  cuda::KvPagesView View(int64_t layer, const uint32_t* list) const;

  int64_t copied_pages() const;  // so far. Thread-safe

 private:
  struct Resident {
    uint64_t lease = 0;
    int64_t tokens = 0;
    int64_t last_use = 0;
  };
  // The lease's entry, or null.
  Resident* Find(uint64_t lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  device::Memory memory_;
  const kv::KvGeometry geometry_;
  mutable Mutex mutex_;
  std::vector<Resident> residents_ ABSL_GUARDED_BY(mutex_);
  int64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t copied_pages_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moestro::engine
