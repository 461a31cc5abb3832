// The queue of requests that wait for KV pages: first come, first served, of bounded length. Thread-safe.
//
// Only the request at the head asks decode for pages, so a short request never overtakes a long one that has waited
// longer. A request that lost its pages because a role died re-enters under its old arrival number, so at the head.
// Asking sends the whole prompt, so after a refusal a request asks again only when pages have come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace moestro::router {

class AdmissionQueue {
 public:
  explicit AdmissionQueue(size_t limit) : limit_(limit) {}

  // A place in the queue. Its destructor leaves the queue. Movable; must not outlive the queue.
  class Place {
   public:
    Place(Place&& other) noexcept;
    Place& operator=(Place&&) = delete;
    ~Place();
    bool IsFirst() const;

   private:
    friend class AdmissionQueue;
    Place(AdmissionQueue& queue, uint64_t arrival) : queue_(&queue), arrival_(arrival) {}
    AdmissionQueue* queue_;
    uint64_t arrival_;
  };

  // Returns a number greater than all earlier ones.
  uint64_t NextArrival();

  // RESOURCE_EXHAUSTED when `limit` requests wait. REQUIRES: no live place has the same arrival number.
  absl::StatusOr<Place> Enter(uint64_t arrival);
  // The same for a request that was admitted before. No limit applies: a refusal would discard its work.
  Place EnterAgain(uint64_t arrival);

  size_t size() const;

  // Counts that a request has returned its pages to decode.
  void CountReturn();
  uint64_t returns() const;

 private:
  const size_t limit_;
  mutable Mutex mutex_;
  uint64_t last_arrival_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t returns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
