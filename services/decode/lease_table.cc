#include "services/decode/lease_table.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro::decode {

absl::Status PreemptedError() { return absl::AbortedError("preempted: an older request needed the pages"); }

absl::StatusOr<std::shared_ptr<Lease>> LeaseTable::Reserve(Request request) {
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  const int64_t room = pool_.most_tokens() - tokens;
  if (tokens == 0) return absl::InvalidArgumentError("Reserve names no token_ids");
  if (request.cache_scope.size() > kMaxCacheScopeBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache_scope: has ", request.cache_scope.size(), " bytes, may have ", kMaxCacheScopeBytes));
  }
  if (room < std::min<int64_t>(request.max_tokens, 1)) {
    return absl::InvalidArgumentError(absl::StrCat(tokens, " tokens and one more can never fit the KV pool's ",
                                                   tokens + room, " tokens; ask for less, or enlarge the pool",
                                                   " (--kv-tokens)"));
  }
  const MutexLock lock(mutex_);
  if (OlderOneWaits(request.arrival)) {
    return absl::ResourceExhaustedError("an older request waits for pages that are draining");
  }
  MOE_ASSIGN_OR_RETURN(KvLease kv,
                       pool_.Reserve({.tokens = request.tokens,
                                      .capacity = tokens + std::min({request.max_tokens, reserve_ahead_, room}),
                                      .cache_scope = request.cache_scope,
                                      .ignore_cache = request.ignore_cache}));
  auto lease = std::make_shared<Lease>(Lease{.kv = std::move(kv),
                                             .tokens = std::move(request.tokens),
                                             .arrival = request.arrival,
                                             .limit = tokens + request.max_tokens,
                                             .cacheable = !request.ignore_cache});
  holders_[lease->age()].lease = lease;
  return lease;
}

bool LeaseTable::OlderOneWaits(uint64_t arrival) const {
  return std::ranges::any_of(
      holders_, [&](const auto& holder) { return holder.second.waits_for_pages && holder.first.first < arrival; });
}

LeaseTable::Room LeaseTable::MakeRoom(const std::shared_ptr<Lease>& lease) {
  Room room;
  const MutexLock lock(mutex_);
  const auto holder = holders_.find(lease->age());
  while (true) {
    const absl::Status grown = pool_.Grow(lease->kv, static_cast<int64_t>(lease->tokens.size()));
    room.made = grown.ok();
    room.at_end = absl::IsInvalidArgument(grown);
    holder->second.waits_for_pages = !room.made && !room.at_end;
    if (room.made || room.at_end) return room;
    // Draining pages come back by themselves, and others get memory, so no other lease needs to lose its pages.
    const kv::KvPool::Stats stats = pool_.stats();
    if (stats.draining_pages > stats.stuck_pages || stats.total_pages < stats.most_pages) return room;
    const auto youngest = std::prev(holders_.end());
    ++preemptions_;
    room.preempted.push_back(youngest->second.lease);
    const bool itself = youngest == holder;
    GiveBack(youngest);
    if (itself) return room;
  }
}

void LeaseTable::Cache(const Lease& lease) {
  if (lease.cacheable) pool_.Cache(lease.kv, lease.tokens);
}

void LeaseTable::Release(const Lease& lease) {
  const MutexLock lock(mutex_);
  if (const auto holder = holders_.find(lease.age()); holder != holders_.end()) GiveBack(holder);
}

void LeaseTable::ReleaseFailed(const Lease& lease) {
  pool_.Fail(lease.kv);
  Release(lease);
}

void LeaseTable::GiveBack(Holders::iterator holder) {
  const Lease& lease = *holder->second.lease;
  // Excludes the page of the last token: prefill may still be writing there. It computes the last token anew even when
  // it is valid.
  if (lease.cacheable) pool_.Cache(lease.kv, std::span(lease.tokens).first(lease.tokens.size() - 1));
  pool_.Release(lease.kv);
  holders_.erase(holder);
}

absl::Status LeaseTable::Check(const Lease& lease) const {
  const MutexLock lock(mutex_);
  return holders_.contains(lease.age()) ? absl::OkStatus() : PreemptedError();
}

int64_t LeaseTable::preemptions() const {
  const MutexLock lock(mutex_);
  return preemptions_;
}

int64_t LeaseTable::waiting_for_pages() const {
  const MutexLock lock(mutex_);
  return std::ranges::count_if(holders_, [](const auto& holder) { return holder.second.waits_for_pages; });
}

}  // namespace moestro::decode
