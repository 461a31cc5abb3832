#include "common/kv/pool.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/kv/layout.h"
#include "common/kv/writer_lock.h"

namespace moestro {
namespace {

// Hands out the lowest free index first, so that a run of requests always gets the same pages.
using FreeList = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;

FreeList MakeFreeList(int64_t count) {
  FreeList list;
  for (int64_t i = 0; i < count; ++i) list.push(static_cast<uint32_t>(i));
  return list;
}

uint32_t Take(FreeList& list) {
  const uint32_t index = list.top();
  list.pop();
  return index;
}

// The finaliser of SplitMix64: neighbouring epochs become numbers that are far apart.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// What the owner knows about a slot. The owner's memory, so that no writer can harm the accounting.
struct Lease {
  uint64_t id = 0;  // 0: free
  bool draining = false;
  std::vector<uint32_t> pages;
};

absl::Status FormatPool(uint8_t* base, uint64_t epoch, const std::string& fingerprint, const KvGeometry& geometry,
                        const KvLayout& layout) {
  auto* slots = reinterpret_cast<LeaseSlot*>(base + layout.slots_offset);
  for (int64_t i = 0; i < geometry.lease_slots; ++i) {
    MOE_RETURN_IF_ERROR(InitWriterLock((new (slots + i) LeaseSlot{})->writer));
  }
  auto* header = new (base) PoolHeader{};
  header->layout_version = kKvPoolLayoutVersion;
  header->epoch = epoch;
  std::ranges::copy(fingerprint, header->fingerprint);
  header->geometry = geometry;
  header->slots_offset = layout.slots_offset;
  header->pages_offset = layout.pages_offset;
  header->total_bytes = layout.total_bytes;
  std::atomic_ref(header->magic).store(kKvPoolMagic, std::memory_order_release);
  return absl::OkStatus();
}

}  // namespace

struct KvPool::Impl {
  Impl(SharedMemory shared_memory, uint64_t pool_epoch, const KvGeometry& pool_geometry, const KvLayout& pool_layout)
      : memory(std::move(shared_memory)),
        epoch(pool_epoch),
        geometry(pool_geometry),
        slots(reinterpret_cast<LeaseSlot*>(memory.data() + pool_layout.slots_offset)),
        pages_base(memory.data() + pool_layout.pages_offset),
        next_id(Mix(pool_epoch)),
        free_pages(MakeFreeList(pool_geometry.page_count)),
        free_slots(MakeFreeList(pool_geometry.lease_slots)),
        leases(pool_geometry.lease_slots) {}

  // Never 0. A pool would have to hand out 2^64 leases to come round.
  uint64_t NextLeaseId() {
    if (next_id == 0) ++next_id;
    return next_id++;
  }

  // Null when `lease` was given back.
  Lease* Find(const KvLease& lease) {
    if (lease.id == 0 || lease.slot >= leases.size()) return nullptr;
    Lease& record = leases[lease.slot];
    return record.id == lease.id && !record.draining ? &record : nullptr;
  }

  // Frees slot and pages unless a living writer holds the lock.
  bool TryFree(uint32_t slot) {
    LeaseSlot& shared = slots[slot];
    if (!TryWriterLock(shared.writer)) return false;
    shared.lease_id.store(0, std::memory_order_release);
    UnlockWriter(shared.writer);
    for (const uint32_t page : leases[slot].pages) free_pages.push(page);
    free_slots.push(slot);
    leases[slot] = Lease{};
    return true;
  }

  void Sweep() {
    std::erase_if(draining, [&](uint32_t slot) {
      const int64_t pages = static_cast<int64_t>(leases[slot].pages.size());
      if (!TryFree(slot)) return false;
      draining_pages -= pages;
      return true;
    });
  }

  absl::Status CheckRoom(int64_t pages_needed) const {
    if (pages_needed > static_cast<int64_t>(free_pages.size())) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "KV pool ", memory.name(), ": ", pages_needed, " pages needed, ", free_pages.size(), " of ",
          geometry.page_count, " free (", draining_pages, " draining); wait, or give the pool more memory"));
    }
    if (free_slots.empty()) {
      return absl::ResourceExhaustedError(absl::StrCat("KV pool ", memory.name(), ": all ", geometry.lease_slots,
                                                       " lease slots are taken; wait, or give the pool more"));
    }
    return absl::OkStatus();
  }

  mutable std::mutex mutex;  // guards everything below `pages_base`
  const SharedMemory memory;
  const uint64_t epoch;
  const KvGeometry geometry;
  LeaseSlot* const slots;
  uint8_t* const pages_base;

  uint64_t next_id;
  FreeList free_pages;
  FreeList free_slots;
  std::vector<Lease> leases;       // by slot
  std::vector<uint32_t> draining;  // slots
  int64_t leased_pages = 0;
  int64_t draining_pages = 0;
};

KvPool::KvPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KvPool::~KvPool() {
  for (int64_t i = 0; i < impl_->geometry.lease_slots; ++i) impl_->slots[i].revoked.store(1, std::memory_order_release);
  // Nothing to be done about a failure here; what is left over shows in `moestro segments list`.
  SharedMemory::Unlink(impl_->memory.name()).IgnoreError();
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const std::string& name, uint64_t epoch,
                                                       const std::string& fingerprint, const KvGeometry& geometry) {
  MOE_ASSIGN_OR_RETURN(const KvLayout layout, ComputeKvLayout(geometry));
  if (fingerprint.size() > sizeof(PoolHeader::fingerprint)) {
    return absl::InvalidArgumentError(absl::StrCat("fingerprint '", fingerprint, "' is longer than ",
                                                   sizeof(PoolHeader::fingerprint), " characters"));
  }
  MOE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(name, layout.total_bytes));
  if (absl::Status status = FormatPool(memory.data(), epoch, fingerprint, geometry, layout); !status.ok()) {
    SharedMemory::Unlink(name).IgnoreError();
    return status;
  }
  return std::unique_ptr<KvPool>(new KvPool(std::make_unique<Impl>(std::move(memory), epoch, geometry, layout)));
}

absl::StatusOr<KvLease> KvPool::Reserve(int64_t tokens) {
  const KvGeometry& geometry = impl_->geometry;
  if (tokens < 1 || (tokens - 1) / geometry.page_tokens >= geometry.page_count) {
    return absl::InvalidArgumentError(absl::StrCat("KV pool ", name(), " holds 1 to ",
                                                   geometry.page_count * geometry.page_tokens, " tokens, not ", tokens,
                                                   "; give the pool more memory or ask for less"));
  }
  const int64_t pages_needed = (tokens - 1) / geometry.page_tokens + 1;
  const std::scoped_lock lock(impl_->mutex);
  impl_->Sweep();
  MOE_RETURN_IF_ERROR(impl_->CheckRoom(pages_needed));
  KvLease lease{.slot = Take(impl_->free_slots), .id = impl_->NextLeaseId(), .pages = {}};
  for (int64_t i = 0; i < pages_needed; ++i) lease.pages.push_back(Take(impl_->free_pages));
  impl_->leases[lease.slot] = {.id = lease.id, .draining = false, .pages = lease.pages};
  impl_->leased_pages += pages_needed;
  LeaseSlot& shared = impl_->slots[lease.slot];
  shared.revoked.store(0, std::memory_order_relaxed);
  shared.valid_tokens.store(0, std::memory_order_relaxed);
  shared.lease_id.store(lease.id, std::memory_order_release);
  return lease;
}

void KvPool::Release(const KvLease& lease) {
  const std::scoped_lock lock(impl_->mutex);
  Lease* const record = impl_->Find(lease);
  if (record == nullptr) return;
  const int64_t pages = static_cast<int64_t>(record->pages.size());
  impl_->slots[lease.slot].revoked.store(1, std::memory_order_release);
  impl_->leased_pages -= pages;
  if (impl_->TryFree(lease.slot)) return;
  record->draining = true;
  impl_->draining.push_back(lease.slot);
  impl_->draining_pages += pages;
}

void KvPool::Sweep() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->Sweep();
}

int64_t KvPool::ValidTokens(const KvLease& lease) const {
  const std::scoped_lock lock(impl_->mutex);
  if (impl_->Find(lease) == nullptr) return 0;
  // Clamped: the number comes from another process.
  return std::clamp<int64_t>(impl_->slots[lease.slot].valid_tokens.load(std::memory_order_acquire), 0,
                             Pages(lease).capacity());
}

void KvPool::PublishValidTokens(const KvLease& lease, int64_t tokens) {
  MOE_CHECK(tokens >= 0 && tokens <= Pages(lease).capacity());
  const std::scoped_lock lock(impl_->mutex);
  if (impl_->Find(lease) == nullptr) return;
  impl_->slots[lease.slot].valid_tokens.store(tokens, std::memory_order_release);
}

KvPages KvPool::Pages(const KvLease& lease) const { return KvPages(impl_->geometry, impl_->pages_base, lease.pages); }

KvPool::Stats KvPool::stats() const {
  const std::scoped_lock lock(impl_->mutex);
  return {.total_pages = impl_->geometry.page_count,
          .free_pages = static_cast<int64_t>(impl_->free_pages.size()),
          .leased_pages = impl_->leased_pages,
          .draining_pages = impl_->draining_pages,
          .leases = impl_->geometry.lease_slots - static_cast<int64_t>(impl_->free_slots.size()) -
                    static_cast<int64_t>(impl_->draining.size())};
}

const std::string& KvPool::name() const { return impl_->memory.name(); }
const KvGeometry& KvPool::geometry() const { return impl_->geometry; }
uint64_t KvPool::epoch() const { return impl_->epoch; }

}  // namespace moestro
