#include "common/collective/shared/region.h"

#include <new>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/platform/robust_mutex.h"

namespace moestro::collective {
namespace {

constexpr int64_t kSlotAlignment = 4096;
constexpr std::align_val_t kHeapAlignment{4096};

int64_t ChannelsOffset() { return RoundUp(sizeof(RegionHeader), alignof(Channel)); }
int64_t SlotsOffset(int64_t ranks) {
  return RoundUp(ChannelsOffset() + ranks * ranks * static_cast<int64_t>(sizeof(Channel)), kSlotAlignment);
}

uint8_t* Allocate(int64_t bytes) {
  return static_cast<uint8_t*>(::operator new(static_cast<size_t>(bytes), kHeapAlignment));
}

}  // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<RankState>::is_always_lock_free,
              "a lock inside an atomic would not be shared between processes");

int64_t Region::Bytes(int ranks, int64_t slot_bytes) {
  return SlotsOffset(ranks) + int64_t{ranks} * ranks * kSlots * RoundUp(slot_bytes, kSlotAlignment);
}

absl::StatusOr<Region> Region::Format(uint8_t* memory, int ranks, int64_t slot_bytes) {
  if (ranks < 1 || ranks > kMaxRanks || slot_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d ranks that exchange %d bytes at a time: use 1 to %d ranks", ranks, slot_bytes, kMaxRanks));
  }
  auto* header = new (memory) RegionHeader{};
  header->ranks = ranks;
  header->slot_bytes = slot_bytes;
  for (Member& member : header->members) MOE_RETURN_IF_ERROR(InitRobustMutex(member.alive));
  const Region region(header, slot_bytes);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) new (&region.channel(from, to)) Channel{};
  }
  return region;
}

absl::StatusOr<Region> Region::Open(uint8_t* memory, int64_t bytes) {
  auto* header = reinterpret_cast<RegionHeader*>(memory);
  const int64_t ranks = bytes < SlotsOffset(1) ? 0 : header->ranks;
  const int64_t slot_bytes = ranks > 0 ? header->slot_bytes : 0;
  if (ranks < 1 || ranks > kMaxRanks || slot_bytes < 1 || slot_bytes > bytes ||
      Bytes(static_cast<int>(ranks), slot_bytes) != bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes of memory are not an exchange region", bytes));
  }
  return Region(header, slot_bytes);
}

absl::Status Region::failure() const {
  if (header_->failure.load(std::memory_order_acquire) != kFailed) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(header_->failure_code), header_->failure_message);
}

int Region::failed_rank() const {
  return header_->failure.load(std::memory_order_acquire) == kFailed ? header_->failed_rank : -1;
}

Channel& Region::channel(int from, int to) const {
  return *(reinterpret_cast<Channel*>(data() + ChannelsOffset()) + from * header_->ranks + to);
}

uint8_t* Region::slot(int from, int to, uint64_t index) const {
  const int64_t queue = from * header_->ranks + to;
  return data() + SlotsOffset(header_->ranks) +
         (queue * kSlots + static_cast<int64_t>(index % kSlots)) * RoundUp(slot_bytes_, kSlotAlignment);
}

HeapRegion::HeapRegion(int ranks, int64_t slot_bytes)
    : memory_(Allocate(Region::Bytes(ranks, slot_bytes))),
      region_(Region::Format(memory_, ranks, slot_bytes).value()) {}
HeapRegion::~HeapRegion() { ::operator delete(memory_, kHeapAlignment); }

}  // namespace moestro::collective
