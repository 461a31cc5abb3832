// The owner's side of the KV pool: which pages are whose, and which prefixes they hold. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/inference/types.h"
#include "common/kv/format.h"
#include "common/kv/pages.h"
#include "common/platform/shared_memory.h"

namespace moestro {

struct KvReservation {
  std::span<const int32_t> tokens = {};  // what the pages shall hold first; looked up in the prefix cache
  int64_t capacity = 0;                  // tokens there must be room for, at least tokens.size() and 1
  std::string cache_scope = {};          // finds what leases of this scope have cached, and caches for them alone
  bool ignore_cache = false;             // compute everything, whatever is cached
};

struct KvPoolOptions {
  bool prefix_cache = true;  // off: nothing is ever found, and Cache does nothing
  // For tests. Pages that nobody has are filled with NaN (0x7fc0), so that what is computed from them is no number, and
  // a page that was written meanwhile ends the process when it is handed out. Costs passes over each page; and the
  // memory of a pool that is gone is not given back as long as somebody has it mapped.
  bool poison_freed = false;
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class KvPool {
 public:
  // A writer lets go of revoked pages within a layer of its model, some hundred milliseconds on a slow machine. One
  // that takes so long has stopped or hangs: its pages are not to be counted on.
  static constexpr std::chrono::seconds kDrainPatience{5};

  // Creates shared memory `name`, all of it reserved at once. RESOURCE_EXHAUSTED names bytes and the remedy;
  // ALREADY_EXISTS if the name is taken; INVALID_ARGUMENT for a geometry that is not positive or too large, or a
  // fingerprint that does not fit PoolHeader.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const std::string& name, uint64_t epoch,
                                                        const std::string& fingerprint, const KvGeometry& geometry,
                                                        const KvPoolOptions& options = {});
  // Revokes all leases, unlinks the name and frees the pages; writers keep the mapping, of zeros then.
  ~KvPool();

  // Room for `capacity` tokens, all or nothing: the pages of the longest cached prefix of `tokens` (never the last
  // token, which is computed for its logits), then own pages, lowest free ones first. When free pages are short, cached
  // pages that no lease holds are evicted; PrefixCache::Evict says which. Own pages are not cleared: nothing in them
  // may be read before it is written (valid_tokens tells). RESOURCE_EXHAUSTED if pages or slots are short now,
  // INVALID_ARGUMENT if the pool could never hold that many, for capacity < 1 or less than tokens.
  absl::StatusOr<KvLease> Reserve(const KvReservation& reservation);

  // Appends own pages to `lease` until it has room for `capacity` tokens; nothing to do if it has. A KvPages made from
  // `lease` before is invalid after. On error nothing changes: RESOURCE_EXHAUSTED if free and evictable pages are
  // short, INVALID_ARGUMENT if the pool could never hold that many, ABORTED once the lease was given back.
  absl::Status Grow(KvLease& lease, int64_t capacity);

  // Makes whole pages of a lease reusable: those below ValidTokens(lease) and within `tokens`, the tokens at positions
  // 0, 1, ... of the lease. From then on they are never to be written with anything else, and valid_tokens never goes
  // back behind them. Costs what was added since the last call; may be called while the lease is being written, and
  // just before Release. Pages whose tokens are cached in other pages already stay the lease's own, but the others are
  // kept as long as the lease. Ignored once the lease was given back.
  void Cache(const KvLease& lease, std::span<const int32_t> tokens);

  // What the lease holds gave no result (NaN): Cache ignores it from now on, and when it is released what it had from
  // the cache, or has in it, can no longer be found. Ignored once the lease was given back.
  void Fail(const KvLease& lease);

  // Gives a lease back. Pages that are in the cache stay there until they are evicted; the others are free. If a
  // process still writes, this comes true as soon as it stops or dies (Sweep): until then nothing of the lease is
  // evicted or free, though what is cached can be found. A lease that was given back before is ignored.
  void Release(const KvLease& lease);

  // Lets go of the pages of released leases whose writer is gone. Called periodically by the owner, by Reserve and
  // Grow.
  void Sweep();

  // Tokens whose KV may be read, at most what lease.pages hold; 0 once the lease was given back. Acquire order.
  int64_t ValidTokens(const KvLease& lease) const;
  // A count that stands still while no work on the lease goes on in its writer's process; 0 once the lease was given
  // back.
  uint32_t Renewals(const KvLease& lease) const;
  // The owner's own writing, at most what lease.pages hold. Release order. Ignored once the lease was given back.
  void PublishValidTokens(const KvLease& lease, int64_t tokens);
  KvPages Pages(const KvLease& lease) const;  // borrows lease.pages
  // All pages, one behind the other: to be registered for copies.
  std::span<const uint8_t> PagesMemory() const;

  // total == free + leased + cached + draining, always.
  struct Stats {
    int64_t total_pages = 0;
    int64_t free_pages = 0;
    int64_t leased_pages = 0;    // held by at least one lease; cached ones also by released leases that are draining
    int64_t cached_pages = 0;    // held by the prefix cache alone: can be evicted
    int64_t draining_pages = 0;  // not cached, released, but a writer has not let go yet
    int64_t stuck_pages = 0;     // of the draining: for kDrainPatience or longer
    int64_t shared_pages = 0;    // of the leased: held by several leases
    int64_t leases = 0;
    // Since the pool was made.
    int64_t prefix_queries_tokens = 0;  // looked up in the cache by successful reservations
    int64_t prefix_hit_tokens = 0;      // of these, found
    int64_t evicted_pages = 0;
  };
  Stats stats() const;
  const std::string& name() const;
  bool damaged() const;  // see SharedMemory
  const KvGeometry& geometry() const;
  uint64_t epoch() const;

 private:
  struct Impl;
  explicit KvPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
