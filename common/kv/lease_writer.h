// The writer's side of the KV pool: maps it, takes a lease's writer lock, fills pages, publishes them.
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

namespace moestro::kv {

class KvPoolMapping {  // thread-safe
 public:
  // NOT_FOUND (owner gone, or still creating it), FAILED_PRECONDITION (layout version, another origin), DATA_LOSS
  // (header).
  static absl::StatusOr<std::shared_ptr<const KvPoolMapping>> Open(const std::string& name, const KvOrigin& origin);
  // Removes the pool of a dead owner and frees its pages, even while others map them: they then read zeros. Of a
  // damaged pool only the name is removed. Errors of SharedMemory::UnlinkOrphan. `poison`: see
  // KvPoolOptions::poison_freed.
  static absl::Status RemoveOrphan(const std::string& name, bool poison = false);

  const KvGeometry& geometry() const { return geometry_; }
  uint64_t epoch() const { return epoch_; }
  LeaseSlot* slot(uint32_t index) const;  // null if out of range
  // For a lease that is queued for its writer: keeps the owner from ending it, as LeaseWriter::Renew does. ABORTED if
  // the lease is over; INVALID_ARGUMENT for a slot that is not in the pool.
  absl::Status Renew(uint32_t slot, uint64_t lease_id) const;
  uint8_t* pages_base() const { return memory_.data() + layout_.pages_offset; }
  const std::string& name() const { return memory_.name(); }
  bool HasOwner() const { return memory_.HasOtherOwner(); }  // a system call

 private:
  KvPoolMapping() = default;
  // Verified copies: values that another process can change are read only once.
  KvGeometry geometry_;
  KvLayout layout_;
  uint64_t epoch_ = 0;
  SharedMemory memory_;
};

// Holds the writer lock of one lease from Acquire to destruction. The lock belongs to the thread that called Acquire:
// it must destroy the object and outlive it, since a thread that ends earlier counts as a dead writer. Any thread may
// call the other functions.
class LeaseWriter {
 public:
  // `pages` are the sequence's pages in token order; they contain whatever the last lease left there. ABORTED if the
  // lease is no longer `lease_id` or is revoked. UNAVAILABLE if another writer holds it, possibly a late writer of the
  // slot's previous lease that is about to unlock. INVALID_ARGUMENT for a slot or page that is not in the pool, a
  // duplicate page, or no pages.
  static absl::StatusOr<std::unique_ptr<LeaseWriter>> Acquire(std::shared_ptr<const KvPoolMapping> pool, uint32_t slot,
                                                              uint64_t lease_id, std::vector<uint32_t> pages);
  ~LeaseWriter();

  // Tokens below valid_tokens() must not be written, except with the same bits in pages that are the lease's own.
  KvPages pages() const;
  int64_t valid_tokens() const;
  // Declares every layer of the first `tokens` tokens written; at most the capacity of pages(). Release order.
  void Publish(int64_t tokens);
  // Work on the lease continues, so the owner need not end it. Only working threads may call this, never a watcher.
  void Renew();
  // The lease's pages gave no result (NaN). Nobody may use them again, including the cached ones among them.
  void Fail();
  // True if the owner wants the pages back or is gone: stop writing and destroy this object. Anything read from the
  // pages since the last false may be garbage. A system call.
  bool revoked() const;

 private:
  LeaseWriter() = default;
  std::shared_ptr<const KvPoolMapping> pool_;
  LeaseSlot* slot_ = nullptr;
  std::vector<uint32_t> pages_;
};

}  // namespace moestro::kv
