// Tracks which requests hold KV pages, and decides which give them up when pages run short. Thread-safe.
//
// Requests are ordered by age (Lease::age), in the order in which the router first let them ask. A lease that needs a
// page takes it from the youngest lease of all. That may be itself, or one that prefill is still filling, but never an
// older one. So no two requests can take pages from each other in turns, and the oldest always finishes. Everything
// that it does not hold is free, evictable, held by a younger lease, or draining. Draining ends when the writer
// releases the pages or dies. The request fits the pool, which Reserve checks. (It may hold more than it needs: pages
// whose tokens another request has cached meanwhile. If it lacks exactly these pages, it gives itself up, and shares
// the cached ones when it comes back.)
//
// Reserve never takes pages from any lease. An older request that comes back while younger ones hold everything waits
// like any other. It waits at the head of the router's queue, so no other request enters before it, until running ones
// have finished. While a lease waits for draining pages, no younger request may reserve them. The lease does not wait
// for the pages of a hanging writer (KvPool::Stats::stuck_pages). It takes its page from the next youngest, or gives
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

namespace moestro::decode {

// What one request holds. Created by LeaseTable::Reserve.
struct Lease {
  KvLease kv;  // grows in LeaseTable::MakeRoom
  // The tokens in the pages, then those to come: Reserve's tokens, then the generated ones. Only the owner of the
  // sequence changes them.
  std::vector<int32_t> tokens;
  uint64_t arrival = 0;
  int64_t limit = 0;      // most tokens that the request may hold
  bool cacheable = true;  // its pages may be reused

  // Less is older. Arrivals restart with the router, so two leases may have the same; then the one created first is
  // older.
  std::pair<uint64_t, uint64_t> age() const { return {arrival, kv.id}; }
};

class LeaseTable {
 public:
  // A scope is stored with every lease and once in the prefix cache. Large enough for a hash or a name.
  static constexpr size_t kMaxCacheScopeBytes = 64;

  struct Request {
    std::vector<int32_t> tokens;
    int64_t max_tokens = 0;  // beyond `tokens`
    uint64_t arrival = 0;
    std::string cache_scope = {};  // as in KvReservation
    bool ignore_cache = false;     // neither uses cached prefixes nor adds to them
  };

  // Reserve requests room for `reserve_ahead` generated tokens; MakeRoom requests the rest when it is needed. The pool
  // must outlive the table.
  LeaseTable(kv::KvPool& pool, int64_t reserve_ahead) : pool_(pool), reserve_ahead_(reserve_ahead) {}

  // RESOURCE_EXHAUSTED: pages are short now. INVALID_ARGUMENT: no tokens, a cache_scope that is too long, or tokens
  // that leave no room for one more in the whole pool. What follows them ends where the pool does.
  absl::StatusOr<std::shared_ptr<Lease>> Reserve(Request request);

  struct Room {
    bool made = false;    // else the lease waits for pages, is at the pool's end, or is among `preempted`
    bool at_end = false;  // the pool can hold no more tokens of one lease; nobody loses pages for that
    std::vector<std::shared_ptr<Lease>> preempted;  // leases that lost their pages
  };
  // Gives `lease` room for all its tokens. REQUIRES: meanwhile this process computes into no lease and changes no
  // lease's tokens; `lease` has not been released.
  Room MakeRoom(const std::shared_ptr<Lease>& lease);

  // Makes whole pages of the lease's valid tokens reusable.
  void Cache(const Lease& lease);

  // Returns the pages. Valid ones stay reusable. Ignores a lease without pages.
  void Release(const Lease& lease);
  // The same for a sequence that failed because of its results. Neither its pages are reused nor the cached ones that
  // it began with, since one of them may be the cause.
  void ReleaseFailed(const Lease& lease);

  // ABORTED if the lease has lost its pages.
  absl::Status Check(const Lease& lease) const;

  // Leases that lost their pages to an older one since the start.
  int64_t preemptions() const;
  // Leases that wait for pages that drain, or have no memory yet.
  int64_t waiting_for_pages() const;

 private:
  struct Holder {
    std::shared_ptr<Lease> lease;
    bool waits_for_pages = false;
  };
  using Holders = std::map<std::pair<uint64_t, uint64_t>, Holder>;  // by age
  bool OlderOneWaits(uint64_t arrival) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Holders::iterator holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  kv::KvPool& pool_;
  const int64_t reserve_ahead_;
  mutable Mutex mutex_;
  Holders holders_ ABSL_GUARDED_BY(mutex_);  // the youngest last
  int64_t preemptions_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The error of a session whose lease has lost its pages.
absl::Status PreemptedError();

}  // namespace moestro::decode
