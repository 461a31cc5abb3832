// The memory through which ranks of one machine exchange blocks: shared memory between processes, any memory between
// threads. The sender copies to the host and the receiver to the device, as GPUs without peer-to-peer access require.
//
//   [RegionHeader][Channel x ranks x ranks][slot x kSlots x ranks x ranks]      slots start on a 4096-byte boundary
//
// Channel (from, to) is a queue of slots with one writer and one reader: slot n mod kSlots is free when `read` is above
// n - kSlots, and full when `written` is above n. Sizes in the header and the channels are never trusted: every rank
// computes sizes from its own arguments.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace moestro::collective {

inline constexpr int kMaxRanks = 8;
// One slot is filled while the other is emptied.
inline constexpr int64_t kSlots = 2;
// Long enough to copy a slot at the bus's rate (80 us at 52 GB/s). Short enough that the first chunk's two copies,
// which nothing overlaps, are a small part of an exchange of 100 MB and more.
inline constexpr int64_t kDefaultSlotBytes = int64_t{4} << 20;

enum class RankState : uint32_t { kAbsent, kJoined, kLeft };

struct alignas(64) Member {
  pthread_mutex_t alive;  // held by the rank's thread while it is joined; then free means dead
  std::atomic<RankState> state;
  std::atomic<uint64_t> operation;  // the last operation that it has reached, from 1
  std::atomic<uint64_t> beats;
};

inline constexpr uint32_t kFailed = 2;

struct RegionHeader {
  int64_t ranks;
  int64_t slot_bytes;
  std::atomic<uint32_t> failure;  // 0: none; 1: being written; kFailed: complete
  int32_t failure_code;           // absl::StatusCode
  int32_t failed_rank;            // the rank at fault
  char failure_message[256];      // zero-terminated
  Member members[kMaxRanks];
};

// Precedes a slot's bytes: both sides must be in the same operation.
struct SlotHeader {
  uint64_t sequence;  // of the operation
  int64_t bytes;      // of the operation's whole block
};

struct Channel {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  SlotHeader headers[kSlots];
};

class Region {  // a view; copyable
 public:
  static int64_t Bytes(int ranks, int64_t slot_bytes = kDefaultSlotBytes);
  // Initialises `memory`: Bytes() bytes, on a 64-byte boundary, not yet in use. INVALID_ARGUMENT unless there are 1 to
  // kMaxRanks ranks.
  static absl::StatusOr<Region> Format(uint8_t* memory, int ranks, int64_t slot_bytes = kDefaultSlotBytes);
  // Opens a formatted region. INVALID_ARGUMENT if `bytes` is not its size.
  static absl::StatusOr<Region> Open(uint8_t* memory, int64_t bytes);

  int ranks() const { return static_cast<int>(header_->ranks); }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t bytes() const { return Bytes(ranks(), slot_bytes_); }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(header_); }
  RegionHeader& header() const { return *header_; }
  // The group's first failure, and the rank at fault; -1: none, or unknown.
  absl::Status failure() const;
  int failed_rank() const;
  Channel& channel(int from, int to) const;
  uint8_t* slot(int from, int to, uint64_t index) const;

 private:
  Region(RegionHeader* header, int64_t slot_bytes) : header_(header), slot_bytes_(slot_bytes) {}
  RegionHeader* header_ = nullptr;
  int64_t slot_bytes_ = 0;
};

// A region in heap memory, for ranks that are threads.
class HeapRegion {
 public:
  // REQUIRES: 1 to kMaxRanks ranks.
  explicit HeapRegion(int ranks, int64_t slot_bytes = kDefaultSlotBytes);
  ~HeapRegion();
  HeapRegion(const HeapRegion&) = delete;
  HeapRegion& operator=(const HeapRegion&) = delete;

  const Region& region() const { return region_; }

 private:
  uint8_t* memory_;
  Region region_;
};

}  // namespace moestro::collective
