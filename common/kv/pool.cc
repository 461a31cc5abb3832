#include "common/kv/pool.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <queue>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/kv/kv_block.h"
#include "common/kv/layout.h"
#include "common/kv/prefix_cache.h"
#include "common/platform/robust_mutex.h"

namespace moestro::kv {
namespace {

using Clock = std::chrono::steady_clock;

// The lowest free index comes first, so that a run of requests always gets the same pages.
using FreeList = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;

FreeList MakeFreeList(IndexRange indices) {
  FreeList list;
  for (int64_t i = indices.begin; i < indices.end; ++i) list.push(static_cast<uint32_t>(i));
  return list;
}

uint32_t Take(FreeList& list) {
  const uint32_t index = list.top();
  list.pop();
  return index;
}

// Free pages, those of each NUMA domain in a list of its own.
class FreePages {
 public:
  // None at first.
  FreePages(int64_t pages, size_t domains) : pages_(pages), lists_(domains) {}

  int64_t size() const { return free_; }

  void Give(uint32_t page) {
    lists_[EvenPartOf(page, pages_, std::ssize(lists_))].push(page);
    ++free_;
  }

  // For a sequence's block. Where the block's domain has no page, that of the domain that has most. REQUIRES: size() >
  // 0.
  uint32_t TakeFor(int64_t block) {
    FreeList* list = &lists_[DomainOfBlock(block, std::ssize(lists_))];
    if (list->empty()) list = &*std::ranges::max_element(lists_, {}, &FreeList::size);
    --free_;
    return Take(*list);
  }

 private:
  const int64_t pages_;  // of the pool
  int64_t free_ = 0;
  std::vector<FreeList> lists_;
};

// The finaliser of SplitMix64: neighbouring epochs map to distant numbers.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The owner's record of a slot, in the owner's memory, so that no writer can corrupt the accounting.
struct PoolLease {
  uint64_t id = 0;  // 0: free
  bool draining = false;
  Clock::time_point draining_since = {};
  std::vector<uint32_t> pages;  // in token order; while draining: own pages that are not in the prefix cache
  std::string cache_scope;
  // The lease's hold in the prefix cache: the path of its first cached_blocks blocks. The path's pages are the lease's,
  // except where the same tokens were already cached in other pages.
  PrefixCache::Node cached = PrefixCache::kRoot;
  int64_t cached_blocks = 0;
};

// INVALID_ARGUMENT unless `text` fits a field of PoolHeader that has `room` characters.
absl::Status CheckFits(const char* what, const std::string& text, size_t room) {
  if (text.size() <= room) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " '", text, "' is longer than ", room, " characters"));
}

absl::Status FormatPool(uint8_t* base, uint64_t epoch, const KvOrigin& origin, const KvGeometry& geometry,
                        const KvLayout& layout) {
  auto* slots = reinterpret_cast<LeaseSlot*>(base + layout.slots_offset);
  for (int64_t i = 0; i < geometry.lease_slots; ++i) {
    MOE_RETURN_IF_ERROR(InitRobustMutex((new (slots + i) LeaseSlot{})->writer));
  }
  auto* header = new (base) PoolHeader{};
  header->layout_version = kKvPoolLayoutVersion;
  header->epoch = epoch;
  std::ranges::copy(origin.fingerprint, header->fingerprint);
  std::ranges::copy(origin.flags, header->flags);
  header->geometry = geometry;
  header->slots_offset = layout.slots_offset;
  header->pages_offset = layout.pages_offset;
  header->total_bytes = layout.total_bytes;
  std::atomic_ref(header->magic).store(kKvPoolMagic, std::memory_order_release);
  return absl::OkStatus();
}

}  // namespace

struct KvPool::Impl {
  Impl(SharedMemory shared_memory, uint64_t pool_epoch, const KvGeometry& pool_geometry, const KvLayout& pool_layout,
       const KvPoolOptions& pool_options)
      : memory(std::move(shared_memory)),
        epoch(pool_epoch),
        geometry(pool_geometry),
        options(pool_options),
        slots(reinterpret_cast<LeaseSlot*>(memory.data() + pool_layout.slots_offset)),
        pages_base(memory.data() + pool_layout.pages_offset),
        domains(std::max<int64_t>(1, std::ssize(pool_options.domains))),
        next_id(Mix(pool_epoch)),
        free_pages(pool_geometry.page_count, static_cast<size_t>(domains)),
        free_slots(MakeFreeList({0, pool_geometry.lease_slots})),
        leases(pool_geometry.lease_slots),
        cache(pool_geometry.page_tokens, pool_geometry.page_count) {
    for (int64_t d = 0; d < domains; ++d) without_memory.push_back(EvenPart(geometry.page_count, d, domains));
  }

  std::span<uint16_t> Numbers(int64_t first_page, int64_t pages) const {
    return {reinterpret_cast<uint16_t*>(pages_base + first_page * geometry.page_bytes()),
            static_cast<size_t>(pages * geometry.page_bytes() / 2)};
  }
  void Poison(int64_t first_page, int64_t pages) const { std::ranges::fill(Numbers(first_page, pages), kPoison); }

  void FreePage(uint32_t page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (options.poison_freed) Poison(page, 1);
    free_pages.Give(page);
  }

  uint32_t TakePage(int64_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const uint32_t page = free_pages.TakeFor(block);
    if (options.poison_freed) {
      const bool written_while_free = std::ranges::any_of(Numbers(page, 1), [](uint16_t x) { return x != kPoison; });
      MOE_CHECK(!written_while_free);
    }
    return page;
  }

  // Never 0. The pool would have to grant 2^64 leases to wrap around.
  uint64_t NextLeaseId() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (next_id == 0) ++next_id;
    return next_id++;
  }

  // Null if `lease` was released.
  PoolLease* Find(const KvLease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (lease.id == 0 || lease.slot >= leases.size()) return nullptr;
    PoolLease& record = leases[lease.slot];
    return record.id == lease.id && !record.draining ? &record : nullptr;
  }

  // For a living lease. Clamped to its pages, since another process writes the number.
  int64_t ValidTokens(uint32_t slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const int64_t capacity = static_cast<int64_t>(leases[slot].pages.size()) * geometry.page_tokens;
    return std::clamp<int64_t>(slots[slot].valid_tokens.load(std::memory_order_acquire), 0, capacity);
  }

  // For a living lease.
  bool Failed(uint32_t slot) const { return slots[slot].failed.load(std::memory_order_acquire) != 0; }

  int64_t StuckPages() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    int64_t pages = 0;
    const Clock::time_point limit = options.now() - kDrainPatience;
    for (const uint32_t slot : draining) {
      if (leases[slot].draining_since <= limit) pages += static_cast<int64_t>(leases[slot].pages.size());
    }
    return pages;
  }

  // Frees slot, pages and cached path unless a living writer holds the lock.
  bool TryFree(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    LeaseSlot& shared = slots[slot];
    if (!TryLockRobust(shared.writer)) return false;
    shared.lease_id.store(0, std::memory_order_release);
    UnlockRobust(shared.writer);
    PoolLease& record = leases[slot];
    for (const uint32_t page : record.pages) FreePage(page);
    cache.Drop(record.cached);
    free_slots.push(slot);
    record = PoolLease{};
    return true;
  }

  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::erase_if(draining, [&](uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      const int64_t pages = static_cast<int64_t>(leases[slot].pages.size());
      if (!TryFree(slot)) return false;
      draining_pages -= pages;
      return true;
    });
  }

  int64_t MostPages() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return grows ? geometry.page_count : total_pages; }

  // Blocks that hold `tokens` tokens, at least 1. INVALID_ARGUMENT if the pool has fewer.
  absl::StatusOr<int64_t> BlocksFor(int64_t tokens) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const int64_t most = MostPages();
    if (tokens < 1 || (tokens - 1) / geometry.page_tokens >= most) {
      return absl::InvalidArgumentError(absl::StrCat("KV pool ", memory.name(), " holds 1 to ",
                                                     most * geometry.page_tokens, " tokens, not ", tokens,
                                                     "; give the pool more memory or ask for less"));
    }
    return (tokens - 1) / geometry.page_tokens + 1;
  }

  // The cached pages with which a lease on `reservation` begins.
  std::vector<uint32_t> Lookup(const KvReservation& reservation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!options.prefix_cache || reservation.ignore_cache || reservation.tokens.empty()) return {};
    return cache.Match(reservation.cache_scope, reservation.tokens.first(reservation.tokens.size() - 1));
  }

  // Whether `pages_needed` are free or evictable, if `kept` idle pages must stay.
  absl::Status CheckRoom(int64_t pages_needed, int64_t kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const int64_t free = free_pages.size();
    if (pages_needed > free && total_pages < MostPages()) {
      lacking_pages = std::max(lacking_pages, pages_needed - free);
      NotifyIfShort();
      return absl::ResourceExhaustedError(absl::StrCat("KV pool ", memory.name(), ": ", pages_needed, " pages needed, ",
                                                       free, " free; it is taking more memory"));
    }
    const int64_t evictable = cache.idle_pages() - kept;
    if (pages_needed <= free + evictable) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "KV pool ", memory.name(), ": ", pages_needed, " pages needed, ", free, " of ", total_pages, " free and ",
        evictable, " to be evicted (", draining_pages, " draining); wait, or give the pool more memory"));
  }

  // Makes those of `rest` below `end` free. They have memory.
  void AddPages(IndexRange& rest, int64_t end) {
    const MutexLock lock(mutex);
    total_pages += end - rest.begin;
    lacking_pages = std::max<int64_t>(0, lacking_pages - (end - rest.begin));
    for (; rest.begin < end; ++rest.begin) FreePage(static_cast<uint32_t>(rest.begin));
  }

  // KvPool::Extend.
  absl::Status Extend(int64_t pages) {
    const int64_t share = CeilDiv(pages, domains);
    absl::Status status;
    for (int64_t d = 0; d < domains && status.ok(); ++d) {
      IndexRange& rest = without_memory[d];
      const IndexRange next{rest.begin, std::min(rest.end, rest.begin + share)};
      if (next.size() == 0) continue;
      const auto byte = [&](int64_t page) { return pages_base - memory.data() + page * geometry.page_bytes(); };
      ReserveOptions reserve{.threads = 1};  // further ones could not be started when the system has no more
      if (!options.domains.empty()) reserve.stretches = {{byte(next.end), &options.domains[d]}};
      status = memory.Reserve({byte(next.begin), byte(next.end)}, reserve);
      if (!status.ok()) break;
      AddPages(rest, next.end);
    }
    const MutexLock lock(mutex);
    if (!status.ok()) lacking_pages = 0;  // whoever lacks them comes back
    return status;
  }

  // Appends `count` own pages to `pages`. Call after CheckRoom.
  void TakePages(int64_t count, std::vector<uint32_t>& pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (; free_pages.size() < count; ++evicted_pages) FreePage(cache.Evict());
    for (int64_t i = 0; i < count; ++i) pages.push_back(TakePage(std::ssize(pages)));
    own_pages += count;
    NotifyIfShort();
  }

  void NotifyIfShort() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!notify_short || total_pages == geometry.page_count) return;
    if (lacking_pages > 0 || free_pages.size() < few_pages) notify_short();
  }

  mutable Mutex mutex;
  const SharedMemory memory;
  const uint64_t epoch;
  const KvGeometry geometry;
  const KvPoolOptions options;
  LeaseSlot* const slots;
  uint8_t* const pages_base;
  const int64_t domains;
  std::vector<IndexRange> without_memory;  // pages by domain; of Extend

  uint64_t next_id ABSL_GUARDED_BY(mutex);
  FreePages free_pages ABSL_GUARDED_BY(mutex);
  FreeList free_slots ABSL_GUARDED_BY(mutex);
  std::vector<PoolLease> leases ABSL_GUARDED_BY(mutex);   // by slot
  std::vector<uint32_t> draining ABSL_GUARDED_BY(mutex);  // slots
  PrefixCache cache ABSL_GUARDED_BY(mutex);
  bool grows ABSL_GUARDED_BY(mutex) = true;
  int64_t total_pages ABSL_GUARDED_BY(mutex) = 0;
  int64_t lacking_pages ABSL_GUARDED_BY(mutex) = 0;
  int64_t few_pages ABSL_GUARDED_BY(mutex) = 0;  // fewer free ones are short
  std::function<void()> notify_short ABSL_GUARDED_BY(mutex);
  int64_t own_pages ABSL_GUARDED_BY(mutex) = 0;  // of living leases, without cached ones
  int64_t draining_pages ABSL_GUARDED_BY(mutex) = 0;
  int64_t queried_tokens ABSL_GUARDED_BY(mutex) = 0;
  int64_t hit_tokens ABSL_GUARDED_BY(mutex) = 0;
  int64_t evicted_pages ABSL_GUARDED_BY(mutex) = 0;
};

KvPool::KvPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KvPool::~KvPool() {
  for (int64_t i = 0; i < impl_->geometry.lease_slots; ++i) impl_->slots[i].revoked.store(1, std::memory_order_release);
  // A failure here has no remedy; leftovers appear in `moestro segments list`.
  if (impl_->options.poison_freed) {
    for (int64_t d = 0; d < impl_->domains; ++d) {
      const int64_t begin = EvenPart(impl_->geometry.page_count, d, impl_->domains).begin;
      impl_->Poison(begin, impl_->without_memory[d].begin - begin);
    }
  } else {
    impl_->memory.Free(impl_->pages_base - impl_->memory.data()).IgnoreError();
  }
  SharedMemory::Unlink(impl_->memory.name()).IgnoreError();
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const std::string& name, uint64_t epoch, const KvOrigin& origin,
                                                       const KvGeometry& geometry, const KvPoolOptions& options) {
  MOE_ASSIGN_OR_RETURN(const KvLayout layout, ComputeKvLayout(geometry));
  MOE_RETURN_IF_ERROR(CheckFits("fingerprint", origin.fingerprint, sizeof(PoolHeader::fingerprint)));
  MOE_RETURN_IF_ERROR(CheckFits("flags", origin.flags, sizeof(PoolHeader::flags)));
  // Before anything is made for each page: there may be too many.
  const bool whole = options.first_pages == 0;
  ReserveOptions reserve;
  for (size_t d = 0; whole && d < options.domains.size(); ++d) {
    const int64_t end = EvenPart(geometry.page_count, static_cast<int64_t>(d), std::ssize(options.domains)).end;
    reserve.stretches.push_back({layout.pages_offset + end * geometry.page_bytes(), &options.domains[d]});
  }
  MOE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(name, layout.total_bytes, reserve,
                                                                 whole ? layout.total_bytes : layout.pages_offset));
  absl::Cleanup unlink = [&] { SharedMemory::Unlink(name).IgnoreError(); };
  MOE_RETURN_IF_ERROR(FormatPool(memory.data(), epoch, origin, geometry, layout));
  auto impl = std::make_unique<Impl>(std::move(memory), epoch, geometry, layout, options);
  if (whole) {
    for (IndexRange& rest : impl->without_memory) impl->AddPages(rest, rest.end);
  } else {
    MOE_RETURN_IF_ERROR(impl->Extend(options.first_pages));
  }
  std::move(unlink).Cancel();
  return std::unique_ptr<KvPool>(new KvPool(std::move(impl)));
}

absl::Status KvPool::Extend(int64_t pages) { return impl_->Extend(pages); }

void KvPool::NotifyWhenShort(int64_t free_pages, std::function<void()> notify) {
  const MutexLock lock(impl_->mutex);
  impl_->few_pages = free_pages;
  impl_->notify_short = std::move(notify);
  impl_->NotifyIfShort();
}

void KvPool::SetGrowing(bool grows) {
  const MutexLock lock(impl_->mutex);
  impl_->grows = grows;
}

absl::StatusOr<KvLease> KvPool::Reserve(const KvReservation& reservation) {
  const int64_t tokens = static_cast<int64_t>(reservation.tokens.size());
  if (tokens > reservation.capacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV pool ", name(), ": ", tokens, " tokens and room for only ", reservation.capacity));
  }
  const MutexLock lock(impl_->mutex);
  MOE_ASSIGN_OR_RETURN(const int64_t blocks, impl_->BlocksFor(reservation.capacity));
  impl_->Sweep();
  std::vector<uint32_t> pages = impl_->Lookup(reservation);
  const int64_t found = static_cast<int64_t>(pages.size());
  const int64_t kept = std::ranges::count_if(
      pages, [&](uint32_t page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(impl_->mutex) { return impl_->cache.IsIdle(page); });
  MOE_RETURN_IF_ERROR(impl_->CheckRoom(blocks - found, kept));
  if (impl_->free_slots.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("KV pool ", name(), ": all ", impl_->geometry.lease_slots,
                                                     " lease slots are taken; wait, or give the pool more"));
  }
  const PrefixCache::Node cached = pages.empty() ? PrefixCache::kRoot : pages.back();
  impl_->cache.Hold(cached);
  impl_->TakePages(blocks - found, pages);
  KvLease lease{.pool = name(),
                .slot = Take(impl_->free_slots),
                .id = impl_->NextLeaseId(),
                .pages = std::move(pages),
                .cached_tokens = found * impl_->geometry.page_tokens};
  impl_->leases[lease.slot] = {.id = lease.id,
                               .draining = false,
                               .pages = lease.pages,
                               .cache_scope = reservation.cache_scope,
                               .cached = cached,
                               .cached_blocks = found};
  if (impl_->options.prefix_cache && !reservation.ignore_cache) {
    impl_->queried_tokens += tokens;
    impl_->hit_tokens += lease.cached_tokens;
  }
  LeaseSlot& shared = impl_->slots[lease.slot];
  shared.revoked.store(0, std::memory_order_relaxed);
  shared.failed.store(0, std::memory_order_relaxed);
  shared.valid_tokens.store(lease.cached_tokens, std::memory_order_relaxed);
  shared.lease_id.store(lease.id, std::memory_order_release);
  return lease;
}

absl::Status KvPool::Grow(KvLease& lease, int64_t capacity) {
  const MutexLock lock(impl_->mutex);
  PoolLease* const record = impl_->Find(lease);
  if (record == nullptr) return absl::AbortedError(absl::StrCat("KV pool ", name(), ": the lease was given back"));
  const int64_t have = static_cast<int64_t>(record->pages.size());
  if (capacity <= have * impl_->geometry.page_tokens) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(const int64_t blocks, impl_->BlocksFor(capacity));
  impl_->Sweep();
  MOE_RETURN_IF_ERROR(impl_->CheckRoom(blocks - have, 0));
  impl_->TakePages(blocks - have, record->pages);
  lease.pages = record->pages;
  return absl::OkStatus();
}

void KvPool::Cache(const KvLease& lease, std::span<const int32_t> tokens) {
  if (!impl_->options.prefix_cache) return;
  const MutexLock lock(impl_->mutex);
  PoolLease* const record = impl_->Find(lease);
  if (record == nullptr || impl_->Failed(lease.slot)) return;
  const int64_t page_tokens = impl_->geometry.page_tokens;
  const int64_t end = std::min(impl_->ValidTokens(lease.slot), static_cast<int64_t>(tokens.size())) / page_tokens;
  for (int64_t& block = record->cached_blocks; block < end; ++block) {
    const uint32_t page = record->pages[block];
    const auto block_tokens = tokens.subspan(block * page_tokens, page_tokens);
    record->cached = impl_->cache.Extend(record->cache_scope, record->cached, block_tokens, page);
    if (record->cached == page) --impl_->own_pages;
  }
}

void KvPool::Fail(const KvLease& lease) {
  const MutexLock lock(impl_->mutex);
  if (impl_->Find(lease) == nullptr) return;
  impl_->slots[lease.slot].failed.store(1, std::memory_order_release);
}

void KvPool::Release(const KvLease& lease) {
  const MutexLock lock(impl_->mutex);
  PoolLease* const record = impl_->Find(lease);
  if (record == nullptr) return;
  if (impl_->Failed(lease.slot)) impl_->cache.Forget(record->cached);
  // Only this lease can have put its pages into the cache, and its hold kept them from eviction.
  std::erase_if(record->pages,
                [&](uint32_t page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(impl_->mutex) { return impl_->cache.Contains(page); });
  const int64_t pages = static_cast<int64_t>(record->pages.size());
  impl_->slots[lease.slot].revoked.store(1, std::memory_order_release);
  impl_->own_pages -= pages;
  if (impl_->TryFree(lease.slot)) return;
  record->draining = true;
  record->draining_since = impl_->options.now();
  impl_->draining.push_back(lease.slot);
  impl_->draining_pages += pages;
}

void KvPool::Sweep() {
  const MutexLock lock(impl_->mutex);
  impl_->Sweep();
}

int64_t KvPool::ValidTokens(const KvLease& lease) const {
  const MutexLock lock(impl_->mutex);
  if (impl_->Find(lease) == nullptr) return 0;
  return std::min(impl_->ValidTokens(lease.slot), Pages(lease).capacity());
}

uint32_t KvPool::Renewals(const KvLease& lease) const {
  const MutexLock lock(impl_->mutex);
  if (impl_->Find(lease) == nullptr) return 0;
  return impl_->slots[lease.slot].renewals.load(std::memory_order_relaxed);
}

void KvPool::PublishValidTokens(const KvLease& lease, int64_t tokens) {
  MOE_CHECK(tokens >= 0 && tokens <= Pages(lease).capacity());
  const MutexLock lock(impl_->mutex);
  if (impl_->Find(lease) == nullptr) return;
  impl_->slots[lease.slot].valid_tokens.store(tokens, std::memory_order_release);
}

KvPages KvPool::Pages(const KvLease& lease) const {
  return KvPages(impl_->geometry, impl_->pages_base, lease.pages, lease.id);
}
std::span<const uint8_t> KvPool::PagesMemory() const {
  const KvGeometry& geometry = impl_->geometry;
  return {impl_->pages_base, static_cast<size_t>(geometry.page_count * geometry.page_bytes())};
}

KvPool::Stats KvPool::stats() const {
  const MutexLock lock(impl_->mutex);
  return {.total_pages = impl_->total_pages,
          .most_pages = impl_->MostPages(),
          .lacking_pages = impl_->lacking_pages,
          .free_pages = impl_->free_pages.size(),
          .leased_pages = impl_->own_pages + impl_->cache.held_pages(),
          .cached_pages = impl_->cache.idle_pages(),
          .draining_pages = impl_->draining_pages,
          .stuck_pages = impl_->StuckPages(),
          .shared_pages = impl_->cache.shared_pages(),
          .leases = impl_->geometry.lease_slots - static_cast<int64_t>(impl_->free_slots.size()) -
                    static_cast<int64_t>(impl_->draining.size()),
          .prefix_queries_tokens = impl_->queried_tokens,
          .prefix_hit_tokens = impl_->hit_tokens,
          .evicted_pages = impl_->evicted_pages};
}

int64_t KvPool::most_tokens() const {
  const MutexLock lock(impl_->mutex);
  return impl_->MostPages() * impl_->geometry.page_tokens;
}

const std::string& KvPool::name() const { return impl_->memory.name(); }
bool KvPool::damaged() const { return impl_->memory.damaged(); }
const KvGeometry& KvPool::geometry() const { return impl_->geometry; }
uint64_t KvPool::epoch() const { return impl_->epoch; }

}  // namespace moestro::kv
