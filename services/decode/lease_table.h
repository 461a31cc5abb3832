// Who holds KV pages, and who gives them up when they run short. Thread-safe.
//
// Requests are ordered by age (Lease::age). A lease that needs a page takes it from the youngest lease of all, which
// may be one that prefill is still filling, or itself; never from an older one. So no two requests can take pages from
// each other in turns, and the oldest always finishes: everything that it does not hold is free, evictable, held by a
// younger lease, or draining, which ends when the writer lets go or dies; and it fits the pool, which Reserve checks.
// (It may hold more than it needs: pages whose tokens were cached by another request meanwhile. If these are what is
// missing it gives itself up, and shares them when it comes back.)
//
// Reserve never takes pages from anybody. An older request that comes back while younger ones hold everything waits
// like any other: at the head of the router's line, so that nobody else gets in before it, until those that run have
// finished. While a lease waits for draining pages no younger request may reserve them away from it. It does not wait
// for those of a writer that hangs (KvPool::Stats::stuck_pages), but takes its page from the next youngest, or gives
// itself up.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/kv/pool.h"

namespace moestro {

// What one request holds. Made by LeaseTable::Reserve.
struct Lease {
  KvLease kv;  // grows in LeaseTable::MakeRoom
  // What the pages hold or shall hold next: Reserve's tokens, then what decode generated. Changed only by who runs the
  // sequence.
  std::vector<int32_t> tokens;
  uint64_t arrival = 0;
  int64_t limit = 0;      // tokens that the request may come to hold
  bool cacheable = true;  // what it computes may be reused

  // Less is older. Arrivals begin anew with the router, so two leases may have the same: then the first one is older.
  std::pair<uint64_t, uint64_t> age() const { return {arrival, kv.id}; }
};

class LeaseTable {
 public:
  // A scope is kept with every lease and once in the prefix cache: room for a hash or a name, not for a text.
  static constexpr size_t kMaxCacheScopeBytes = 64;

  struct Request {
    std::vector<int32_t> tokens;
    int64_t max_tokens = 0;  // after them
    uint64_t arrival = 0;
    std::string cache_scope = {};  // KvReservation's
    bool ignore_cache = false;     // neither uses what is cached nor adds to it
  };

  // Reserve asks for room for `reserve_ahead` tokens to be generated; the rest is asked for when it is needed. The pool
  // must outlive the table.
  LeaseTable(KvPool& pool, int64_t reserve_ahead) : pool_(pool), reserve_ahead_(reserve_ahead) {}

  // RESOURCE_EXHAUSTED if pages are short now; INVALID_ARGUMENT for no tokens, a cache_scope that is too long, or if
  // tokens and max_tokens could never fit the pool.
  absl::StatusOr<std::shared_ptr<Lease>> Reserve(Request request);

  struct Room {
    bool made = false;  // else the lease must wait for pages that are draining, or is among `preempted`
    std::vector<std::shared_ptr<Lease>> preempted;  // have lost their pages
  };
  // Makes `lease` hold room for all its tokens. REQUIRES: nobody of this process computes into any lease meanwhile, or
  // changes its tokens; `lease` has not been released.
  Room MakeRoom(const std::shared_ptr<Lease>& lease);

  // Makes whole pages of the lease's valid tokens reusable.
  void Cache(const Lease& lease);

  // Gives the pages back; what is valid in them stays reusable. A lease without pages is ignored.
  void Release(const Lease& lease);
  // The same for a sequence that failed for what it computed: nothing of its pages is reused, nor of the cached ones
  // that it began with, for one of them may be why.
  void ReleaseFailed(const Lease& lease);

  // ABORTED if the lease has lost its pages.
  absl::Status Check(const Lease& lease) const;

  // Leases that lost their pages to an older one, since the start.
  int64_t preemptions() const;
  // Leases that wait for pages that are draining.
  int64_t waiting_for_pages() const;

 private:
  struct Holder {
    std::shared_ptr<Lease> lease;
    bool waits_for_pages = false;
  };
  using Holders = std::map<std::pair<uint64_t, uint64_t>, Holder>;  // by age
  bool OlderOneWaits(uint64_t arrival) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Holders::iterator holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  KvPool& pool_;
  const int64_t reserve_ahead_;
  mutable Mutex mutex_;
  Holders holders_ ABSL_GUARDED_BY(mutex_);  // the youngest last
  int64_t preemptions_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What a session is told whose lease has lost its pages.
absl::Status PreemptedError();

}  // namespace moestro
