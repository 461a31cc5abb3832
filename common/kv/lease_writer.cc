#include "common/kv/lease_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/platform/robust_mutex.h"

namespace moestro::kv {
namespace {

// The header of `memory`: complete and of this version, but with unverified numbers.
absl::StatusOr<PoolHeader> ReadHeader(const SharedMemory& memory) {
  if (memory.size() < static_cast<int64_t>(sizeof(PoolHeader))) {
    return absl::DataLossError(absl::StrCat("only ", memory.size(), " bytes, less than a header"));
  }
  auto* shared = reinterpret_cast<PoolHeader*>(memory.data());
  const uint64_t magic = std::atomic_ref(shared->magic).load(std::memory_order_acquire);
  if (magic == 0) return absl::NotFoundError("its owner is still creating it");
  if (magic != kKvPoolMagic) return absl::DataLossError("not a KV pool (bad magic)");
  PoolHeader header;
  std::memcpy(&header, shared, sizeof(header));
  if (header.layout_version != kKvPoolLayoutVersion) {
    return absl::FailedPreconditionError(absl::StrCat("layout version ", header.layout_version, ", this program knows ",
                                                      kKvPoolLayoutVersion, "; run the same version everywhere"));
  }
  return header;
}

// Of a field of the header, which has no terminator if it is full.
template <size_t kRoom>
std::string TextOf(const char (&field)[kRoom]) {
  return std::string(field, strnlen(field, kRoom));
}

absl::Status CheckOrigin(const PoolHeader& header, const KvOrigin& origin) {
  if (const std::string weights = TextOf(header.fingerprint); weights != origin.fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("belongs to weights ", absl::CHexEscape(weights), ", not to ", origin.fingerprint));
  }
  if (const std::string flags = TextOf(header.flags); flags != origin.flags) {
    return absl::FailedPreconditionError(absl::StrCat("its owner, decode, runs with ", absl::CHexEscape(flags),
                                                      ", prefill with ", origin.flags,
                                                      ": start both with the same, or a prompt's numbers mix"));
  }
  return absl::OkStatus();
}

absl::StatusOr<KvLayout> VerifyLayout(const PoolHeader& header, int64_t object_bytes) {
  const absl::StatusOr<KvLayout> layout = ComputeKvLayout(header.geometry);
  if (!layout.ok()) return absl::DataLossError(layout.status().message());
  if (header.slots_offset != layout->slots_offset || header.pages_offset != layout->pages_offset ||
      header.total_bytes != layout->total_bytes) {
    return absl::DataLossError("the header's offsets do not match its geometry");
  }
  if (layout->total_bytes != object_bytes) {
    return absl::DataLossError(
        absl::StrCat("the header says ", layout->total_bytes, " bytes, the object has ", object_bytes));
  }
  return *layout;
}

absl::Status CheckPages(std::vector<uint32_t> pages, int64_t page_count) {
  if (pages.empty()) return absl::InvalidArgumentError("a lease without pages");
  if (static_cast<int64_t>(pages.size()) > page_count) {
    return absl::InvalidArgumentError(absl::StrCat(pages.size(), " pages, the pool has ", page_count));
  }
  std::ranges::sort(pages);
  if (pages.back() >= page_count) {
    return absl::InvalidArgumentError(absl::StrCat("page ", pages.back(), ", the pool has ", page_count));
  }
  if (const auto twice = std::ranges::adjacent_find(pages); twice != pages.end()) {
    return absl::InvalidArgumentError(absl::StrCat("page ", *twice, " is given twice"));
  }
  return absl::OkStatus();
}

absl::Status NoSuchSlot(uint32_t slot, const KvGeometry& geometry) {
  return absl::InvalidArgumentError(absl::StrCat("KV lease slot ", slot, ", the pool has ", geometry.lease_slots));
}

absl::Status CheckLease(const LeaseSlot& slot, uint64_t lease_id) {
  if (lease_id == 0 || slot.lease_id.load(std::memory_order_acquire) != lease_id) {
    return absl::AbortedError(absl::StrCat("lease ", lease_id, " is over"));
  }
  if (slot.revoked.load(std::memory_order_acquire) != 0) {
    return absl::AbortedError(absl::StrCat("lease ", lease_id, " is revoked"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const KvPoolMapping>> KvPoolMapping::Open(const std::string& name,
                                                                         const KvOrigin& origin) {
  const std::shared_ptr<KvPoolMapping> mapping(new KvPoolMapping);
  const std::string what = absl::StrCat("KV pool ", name);
  MOE_ASSIGN_OR_RETURN(mapping->memory_, SharedMemory::OpenWritable(name));
  if (!mapping->memory_.HasOtherOwner()) return absl::NotFoundError(absl::StrCat(what, ": its owner is gone"));
  const absl::StatusOr<PoolHeader> header = ReadHeader(mapping->memory_);
  if (!header.ok()) return Annotate(header.status(), what);
  const absl::StatusOr<KvLayout> layout = VerifyLayout(*header, mapping->memory_.size());
  if (!layout.ok()) return Annotate(layout.status(), what);
  MOE_RETURN_IF_ERROR(Annotate(CheckOrigin(*header, origin), what));
  mapping->geometry_ = header->geometry;
  mapping->layout_ = *layout;
  mapping->epoch_ = header->epoch;
  return mapping;
}

absl::Status KvPoolMapping::RemoveOrphan(const std::string& name, bool poison) {
  const absl::StatusOr<SharedMemory> memory = SharedMemory::OpenWritable(name);
  MOE_RETURN_IF_ERROR(SharedMemory::UnlinkOrphan(name));
  // An object without a name and an owner never gets one again.
  if (!memory.ok() || memory->HasOtherOwner()) return absl::OkStatus();
  const absl::StatusOr<PoolHeader> header = ReadHeader(*memory);
  const auto layout = header.ok() ? VerifyLayout(*header, memory->size()) : header.status();
  if (!layout.ok()) return absl::OkStatus();
  // The locks before the pages stay: another process may hold one.
  if (!poison) return memory->Free(layout->pages_offset);
  for (const IndexRange& backed : memory->Backed()) {
    const int64_t begin = std::max(backed.begin, layout->pages_offset);
    const int64_t bytes = std::max<int64_t>(0, backed.end - begin);
    std::fill_n(reinterpret_cast<uint16_t*>(memory->data() + begin), bytes / 2, kPoison);
  }
  return absl::OkStatus();
}

LeaseSlot* KvPoolMapping::slot(uint32_t index) const {
  if (index >= geometry_.lease_slots) return nullptr;
  return reinterpret_cast<LeaseSlot*>(memory_.data() + layout_.slots_offset) + index;
}

absl::Status KvPoolMapping::Renew(uint32_t slot_index, uint64_t lease_id) const {
  LeaseSlot* const lease = slot(slot_index);
  if (lease == nullptr) return NoSuchSlot(slot_index, geometry_);
  MOE_RETURN_IF_ERROR(CheckLease(*lease, lease_id));
  lease->renewals.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LeaseWriter>> LeaseWriter::Acquire(std::shared_ptr<const KvPoolMapping> pool,
                                                                  uint32_t slot, uint64_t lease_id,
                                                                  std::vector<uint32_t> pages) {
  LeaseSlot* const lease = pool->slot(slot);
  if (lease == nullptr) return NoSuchSlot(slot, pool->geometry());
  MOE_RETURN_IF_ERROR(CheckPages(pages, pool->geometry().page_count));
  const bool locked = TryLockRobust(lease->writer);
  // The check comes after locking, because its answer lasts only while the lock is held. It comes before looking at
  // `locked`, because a caller whose lease is over must not wait for the slot's next writer.
  if (absl::Status status = CheckLease(*lease, lease_id); !status.ok()) {
    if (locked) UnlockRobust(lease->writer);
    return status;
  }
  if (!locked) return absl::UnavailableError(absl::StrCat("lease ", lease_id, " has another writer"));
  std::unique_ptr<LeaseWriter> writer(new LeaseWriter);
  writer->pool_ = std::move(pool);
  writer->slot_ = lease;
  writer->pages_ = std::move(pages);
  return writer;
}

LeaseWriter::~LeaseWriter() { UnlockRobust(slot_->writer); }

KvPages LeaseWriter::pages() const { return KvPages(pool_->geometry(), pool_->pages_base(), pages_); }

int64_t LeaseWriter::valid_tokens() const {
  return std::clamp<int64_t>(slot_->valid_tokens.load(std::memory_order_acquire), 0, pages().capacity());
}

void LeaseWriter::Publish(int64_t tokens) {
  MOE_CHECK(tokens >= 0 && tokens <= pages().capacity());
  slot_->valid_tokens.store(tokens, std::memory_order_release);
}

void LeaseWriter::Renew() { slot_->renewals.fetch_add(1, std::memory_order_relaxed); }

void LeaseWriter::Fail() { slot_->failed.store(1, std::memory_order_release); }

bool LeaseWriter::revoked() const { return slot_->revoked.load(std::memory_order_acquire) != 0 || !pool_->HasOwner(); }

}  // namespace moestro::kv
