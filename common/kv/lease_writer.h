// The writer's side of the KV pool: map it, take a lease's writer lock, fill pages, publish.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv/format.h"
#include "common/kv/layout.h"
#include "common/kv/pages.h"
#include "common/platform/shared_memory.h"

namespace moestro {

class KvPoolMapping {  // thread-safe
 public:
  // NOT_FOUND (owner gone, or still creating it), FAILED_PRECONDITION (layout version, other weights), DATA_LOSS
  // (header).
  static absl::StatusOr<std::shared_ptr<const KvPoolMapping>> Open(const std::string& name,
                                                                   const std::string& fingerprint);
  // Removes the pool of an owner that is gone, and frees its pages under those who still have it mapped: what they read
  // there is zeros from then on. A damaged one loses its name only. The errors of SharedMemory::UnlinkOrphan. `poison`:
  // see KvPoolOptions::poison_freed.
  static absl::Status RemoveOrphan(const std::string& name, bool poison = false);

  const KvGeometry& geometry() const { return geometry_; }
  uint64_t epoch() const { return epoch_; }
  LeaseSlot* slot(uint32_t index) const;  // null if out of range
  // For a lease that is in line for its writer: keeps the owner from ending it, as LeaseWriter::Renew does. ABORTED if
  // the lease is over; INVALID_ARGUMENT for a slot that is not in the pool.
  absl::Status Renew(uint32_t slot, uint64_t lease_id) const;
  uint8_t* pages_base() const { return memory_.data() + layout_.pages_offset; }
  // All pages, one behind the other: to be registered for copies.
  std::span<const uint8_t> PagesMemory() const {
    return {pages_base(), static_cast<size_t>(geometry_.page_count * geometry_.page_bytes())};
  }
  const std::string& name() const { return memory_.name(); }
  bool HasOwner() const { return memory_.HasOtherOwner(); }  // a system call

 private:
  KvPoolMapping() = default;
  // Copies of what was verified: nothing that another process can change is trusted twice.
  KvGeometry geometry_;
  KvLayout layout_;
  uint64_t epoch_ = 0;
  SharedMemory memory_;
};

// Holds the writer lock of one lease from Acquire to destruction. The lock belongs to a thread: the one that called
// Acquire must destroy the object and outlive it; a thread that ends before counts as a dead writer. The other
// functions may be called from any thread.
class LeaseWriter {
 public:
  // `pages` are the sequence's pages in token order; their contents are whatever the last lease left there.
  // ABORTED if the lease is no longer `lease_id` or is revoked; UNAVAILABLE if another writer holds it, which may also
  // be a late one of the slot's previous lease that is about to let go; INVALID_ARGUMENT for a slot or page that is not
  // in the pool, a page given twice, or no pages.
  static absl::StatusOr<std::unique_ptr<LeaseWriter>> Acquire(std::shared_ptr<const KvPoolMapping> pool, uint32_t slot,
                                                              uint64_t lease_id, std::vector<uint32_t> pages);
  ~LeaseWriter();

  const std::shared_ptr<const KvPoolMapping>& pool() const { return pool_; }
  // Nothing before valid_tokens() may be written, except with the same bits in pages that are the lease's own.
  KvPages pages() const;
  int64_t valid_tokens() const;
  // Every layer of the first `tokens` tokens, at most the capacity of pages(), is written. Release order.
  void Publish(int64_t tokens);
  // Work on the lease goes on: the owner need not end it. To be called from what works, never from what only watches.
  void Renew();
  // What the lease's pages hold gave no result (NaN): nobody is to use them, or the cached ones among them, again.
  void Fail();
  // True when the owner wants the pages back or is gone: stop writing, drop this object. What was read in the pages
  // since it was false last may be anything. A system call.
  bool revoked() const;

 private:
  LeaseWriter() = default;
  std::shared_ptr<const KvPoolMapping> pool_;
  LeaseSlot* slot_ = nullptr;
  std::vector<uint32_t> pages_;
};

}  // namespace moestro
