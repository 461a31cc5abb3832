// KV pages of the pool on the device, of all layers, in rows. Each has a place; where there are fewer places than
// pages, a page that no lane's step uses gives up the place that was used longest ago. The pool's copy is the truth.
//
// A sequence's pages are taken over when it first comes, and again when they have lost their places: one copy a page,
// and for packed pages one kernel. After that the device writes what its steps add, here and (cuda_decode.h) in the
// pool, where a sequence can go on without the device. What a lease holds never changes, and a page that is given back
// comes with another lease, so a lease and a number of its tokens tell what the device has. A page that several leases
// share is copied for each of them: the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/device/device.h"
#include "common/engine/decode_compute.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kv/pages.h"

namespace moestro::engine {

class DevicePages {
 public:
  // memory: of `places` pages. geometry: of the pool. REQUIRES: a geometry of rows.
  DevicePages(device::Memory memory, const kv::KvGeometry& geometry, int64_t places);

  int64_t places() const { return place_count_; }

  // Gives the pages of the sequence's first `visible` tokens places until the lane lets them go, and appends these to
  // `to`. Puts copies on the stream of what the device lacks of the first `tokens` of these tokens. packed: on the
  // device, the stream's own memory for a page as the pool has it; only for packed pages. INTERNAL for pages that are
  // none of the pool's; RESOURCE_EXHAUSTED when lanes hold all places. Thread-safe.
  absl::Status Take(int lane, const kv::KvPages& pages, int64_t tokens, int64_t visible, uint8_t* packed,
                    device::Stream& stream, std::vector<uint32_t>& to);
  // The lane's step is over. done: all that was put on its stream was done, else its copies count for nothing.
  // Thread-safe.
  void LetGo(int lane, bool done);
  // The device has the lease's first `tokens` tokens. Thread-safe.
  void MarkResident(uint64_t lease, int64_t tokens);

  // One layer; `list`, on the device, has the places of sequences' pages.
  cuda::KvPagesView View(int64_t layer, const uint32_t* list) const;

  int64_t copied_pages() const;  // so far. Thread-safe

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  struct Resident {
    uint64_t lease = 0;
    int64_t tokens = 0;
    int64_t last_use = 0;
  };
  struct Place {
    uint32_t page = kNone;  // of the pool
    int64_t last_use = 0;
    std::array<int, kMaxLanes> users = {};  // sequences of the lanes' steps
    // What is there was put there by this lane's step, which is not over; -1: by none.
    int filling_lane = -1;
  };
  // The lease's entry, or null.
  Resident* Find(uint64_t lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Use(Place& place, int lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The page's place, which it may have got just now: then *is_new. RESOURCE_EXHAUSTED as above.
  absl::StatusOr<uint32_t> PlaceOf(uint32_t page, bool* is_new) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  device::Memory memory_;
  const kv::KvGeometry geometry_;
  const int64_t place_count_;
  mutable Mutex mutex_;
  std::vector<Place> places_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> place_of_ ABSL_GUARDED_BY(mutex_);  // [page_count]; kNone: none
  std::vector<Resident> residents_ ABSL_GUARDED_BY(mutex_);
  int64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t copied_pages_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moestro::engine
