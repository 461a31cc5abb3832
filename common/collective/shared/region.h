// The memory through which ranks of one machine exchange blocks: an object in shared memory between processes, any
// memory between threads. A copy to the host by the sender, a copy to the device by the receiver, as GPUs without
// peer-to-peer access need it.
//
//   [RegionHeader][Channel x ranks x ranks][slot x kSlots x ranks x ranks]      slots start on a 4096-byte boundary
//
// Channel (from, to) is a queue of slots with one writer and one reader: slot n mod kSlots is free when `read` is above
// n - kSlots, and full when `written` is above n. What lies in the header and the channels is never trusted for sizes:
// every rank computes them from what it was told.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace moestro::collective {

inline constexpr int kMaxRanks = 8;
// One is copied in while the other is copied out.
inline constexpr int64_t kSlots = 2;
// Long enough that a copy of one runs at the bus's rate (80 us at 52 GB/s), short enough that the first chunk's two
// copies, which nothing overlaps, are a small part of an exchange of 100 MB and more.
inline constexpr int64_t kDefaultSlotBytes = int64_t{4} << 20;

enum class RankState : uint32_t { kAbsent, kJoined, kLeft };

struct alignas(64) Member {
  pthread_mutex_t alive;  // held by the rank's thread while it is joined: free then means dead
  std::atomic<RankState> state;
  std::atomic<uint64_t> operation;  // the last one that it has come to, from 1
  std::atomic<uint64_t> beats;
};

struct RegionHeader {
  int64_t ranks;
  int64_t slot_bytes;
  std::atomic<uint32_t> failure;  // 0: none; 1: one is being written; 2: there is one
  int32_t failure_code;           // absl::StatusCode
  int32_t failed_rank;            // whose fault it is
  char failure_message[256];      // ends with a zero byte
  Member members[kMaxRanks];
};

// What lies before a slot's bytes: both sides must be in the same operation.
struct SlotHeader {
  uint64_t sequence;  // of the operation
  int64_t bytes;      // of its whole block
};

struct Channel {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  SlotHeader headers[kSlots];
};

class Region {  // a view; copyable
 public:
  static int64_t Bytes(int ranks, int64_t slot_bytes = kDefaultSlotBytes);
  // `memory`: Bytes() of them, on a 64-byte boundary, that nobody uses yet. INVALID_ARGUMENT for other than 1 to
  // kMaxRanks ranks.
  static absl::StatusOr<Region> Format(uint8_t* memory, int ranks, int64_t slot_bytes = kDefaultSlotBytes);
  // One that was formatted. INVALID_ARGUMENT if `bytes` is not its size.
  static absl::StatusOr<Region> Open(uint8_t* memory, int64_t bytes);

  int ranks() const { return static_cast<int>(header_->ranks); }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t bytes() const { return Bytes(ranks(), slot_bytes_); }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(header_); }
  RegionHeader& header() const { return *header_; }
  Channel& channel(int from, int to) const;
  uint8_t* slot(int from, int to, uint64_t index) const;

 private:
  Region(RegionHeader* header, int64_t slot_bytes) : header_(header), slot_bytes_(slot_bytes) {}
  RegionHeader* header_ = nullptr;
  int64_t slot_bytes_ = 0;
};

// Heap memory of a region, for ranks that are threads.
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
