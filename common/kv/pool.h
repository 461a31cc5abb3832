// The owner's side of the KV pool: assigns pages to leases, and caches prefixes. Thread-safe.
//
// A pool may be large and take memory by and by: Create gives the first pages memory, Extend others. Only pages that
// have memory are ever assigned. While the pool can still grow, a reservation that lacks pages waits for them instead
// of evicting cached ones.
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
#include "common/platform/numa.h"
#include "common/platform/shared_memory.h"

namespace moestro::kv {

struct KvReservation {
  std::span<const int32_t> tokens = {};  // the first tokens of the sequence; looked up in the prefix cache
  int64_t capacity = 0;                  // tokens that must fit, at least tokens.size() and 1
  std::string cache_scope = {};          // leases find and cache prefixes within this scope only
  bool ignore_cache = false;             // compute everything, cached or not
};

struct KvPoolOptions {
  bool prefix_cache = true;  // off: nothing is found, and Cache does nothing
  // For tests. Pages of no lease are filled with NaN (0x7fc0), so that results computed from them are NaN. If a free
  // page was written, handing it out ends the process. Costs passes over each page; and the memory of a removed pool
  // stays allocated as long as a process maps it.
  bool poison_freed = false;
  // Each has an equal part of the pages in its memory, if it names nodes: page p those of EvenPartOf(p, page_count,
  // domains). Empty: one domain, pages anywhere.
  std::vector<NumaDomain> domains = {};
  int64_t first_pages = 0;  // that have memory from the start; 0: all
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class KvPool {
 public:
  // A writer leaves revoked pages within a layer of its model: some hundred milliseconds on a slow machine. A writer
  // that takes this long has stopped or hangs, so its pages must not be counted on.
  static constexpr std::chrono::seconds kDrainPatience{5};

  // Creates shared memory `name` and reserves the first pages' at once. RESOURCE_EXHAUSTED names bytes and the remedy;
  // ALREADY_EXISTS if the name is taken; INVALID_ARGUMENT for a geometry that is not positive or too large, or an
  // origin that does not fit PoolHeader.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const std::string& name, uint64_t epoch, const KvOrigin& origin,
                                                        const KvGeometry& geometry, const KvPoolOptions& options = {});
  // Revokes all leases, unlinks the name and frees the pages; writers keep the mapping, which then reads as zeros.
  ~KvPool();

  // Gives up to `pages` further pages memory, each domain an equal part, and makes them free. Takes about a second for
  // each GiB; other calls go on meanwhile. RESOURCE_EXHAUSTED: there is no room for them now; some may have
  // got it. One call at a time.
  absl::Status Extend(int64_t pages);
  // Whether the pool may grow to all of its pages, or keeps to those that have memory. Then reservations beyond them
  // are refused, and cached pages are evicted. Initially true.
  void SetGrowing(bool grows);

  // Calls `notify` when fewer than `free_pages` are left, or a reservation lacks pages, while some pages have no
  // memory. The pool is locked meanwhile: `notify` must not call it. Replaces the last call's; nullptr: none.
  void NotifyWhenShort(int64_t free_pages, std::function<void()> notify);

  // Reserves room for `capacity` tokens, all or nothing. First come the pages of the longest cached prefix of `tokens`
  // (without the last token, which is computed for its logits), then own pages, each of the domain of its block
  // (DomainOfBlock) while it has any, lowest free ones first. If free pages are short, cached pages that no lease holds
  // are evicted; PrefixCache::Evict selects them. Own pages are not cleared: they must be written before they are read
  // (valid_tokens tells). RESOURCE_EXHAUSTED if pages or slots are
  // short now, or have no memory yet; INVALID_ARGUMENT if the pool could never hold that many, or if capacity is below
  // 1 or the number of tokens.
  absl::StatusOr<KvLease> Reserve(const KvReservation& reservation);

  // Appends own pages to `lease` until `capacity` tokens fit; does nothing if they do. Invalidates KvPages made from
  // `lease` before. An error changes nothing: RESOURCE_EXHAUSTED if free and evictable pages are short,
  // INVALID_ARGUMENT if the pool could never hold that many, ABORTED if the lease was released.
  absl::Status Grow(KvLease& lease, int64_t capacity);

  // Makes whole pages of a lease reusable: those below ValidTokens(lease) and within `tokens`, the tokens at positions
  // 0, 1, ... of the lease. From then on they must never be overwritten with other contents, and valid_tokens must
  // never fall below their end. The cost is proportional to the tokens added since the last call. May be called while
  // the lease is being written, and just before Release. Pages whose tokens are already cached in other pages stay the
  // lease's own, and the other pages are kept as long as the lease. Ignored after Release.
  void Cache(const KvLease& lease, std::span<const int32_t> tokens);

  // The lease's contents gave no result (NaN). Cache ignores the lease from now on. When it is released, its pages in
  // the cache, found or added, can no longer be found. Ignored after Release.
  void Fail(const KvLease& lease);

  // Releases a lease. Cached pages stay in the cache until evicted; the others become free. If a process still writes,
  // this takes effect when it stops or dies (Sweep). Until then nothing of the lease is evicted or free, though its
  // cached pages can be found. Ignored if already released.
  void Release(const KvLease& lease);

  // Frees the pages of released leases whose writer is gone. The owner calls it periodically; Reserve and Grow call it.
  void Sweep();

  // Tokens whose KV may be read, at most the capacity of lease.pages; 0 after Release. Acquire order.
  int64_t ValidTokens(const KvLease& lease) const;
  // A count that stops advancing while the writer's process does no work on the lease; 0 after Release.
  uint32_t Renewals(const KvLease& lease) const;
  // The owner's own writing: at most the capacity of lease.pages. Release order. Ignored after Release.
  void PublishValidTokens(const KvLease& lease, int64_t tokens);
  KvPages Pages(const KvLease& lease) const;  // references lease.pages
  // The contiguous memory of all pages, to register for copies.
  std::span<const uint8_t> PagesMemory() const;

  // total == free + leased + cached + draining, dense.
  struct Stats {
    int64_t total_pages = 0;    // that have memory
    int64_t most_pages = 0;     // that may have it; total_pages if the pool does not grow
    int64_t lacking_pages = 0;  // that a reservation lacked, less those that Extend has given since
    int64_t free_pages = 0;
    int64_t leased_pages = 0;    // held by at least one lease; cached ones also by released leases that are draining
    int64_t cached_pages = 0;    // held by the prefix cache alone: evictable
    int64_t draining_pages = 0;  // not cached, released, but still locked by a writer
    int64_t stuck_pages = 0;     // draining for kDrainPatience or longer
    int64_t shared_pages = 0;    // leased pages held by several leases
    int64_t leases = 0;
    // Since the pool was created.
    int64_t prefix_queries_tokens = 0;  // looked up in the cache by successful reservations
    int64_t prefix_hit_tokens = 0;      // of these, found
    int64_t evicted_pages = 0;
  };
  Stats stats() const;
  int64_t most_tokens() const;  // of most_pages
  const std::string& name() const;
  bool damaged() const;  // see SharedMemory
  const KvGeometry& geometry() const;
  uint64_t epoch() const;

 private:
  struct Impl;
  explicit KvPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::kv
