// Ranks that work on one thing together: what each holds of it, all of them need.
//
// An operation begins after the work so far on the stream that it is given, and has returned when this rank's part is
// done: what it was to receive is in device memory, what it sent may be overwritten. All ranks call the same operations
// in the same order. Blocks of one operation may have any sizes, zero included, on which sender and receiver agree.
//
// Errors. When a rank fails, is killed or stalls, the operation that others are in fails on all of them, with the name
// of that rank, and so does every later one: a group that has failed stays so.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/device/device.h"

namespace moestro::collective {

enum class Operation { kBarrier, kAllGather, kAllToAll, kRing };
inline constexpr int kOperations = 4;
std::string_view OperationName(Operation operation);

// Device memory to send, and to receive into.
struct SendBlock {
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
};
struct ReceiveBlock {
  uint8_t* data = nullptr;
  int64_t bytes = 0;
};

// What an operation moved over this rank's link: every byte that left for another rank or arrived from one, once.
struct OperationCounters {
  int64_t calls = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  double seconds = 0;  // on the device's clock, from the end of the stream's work to the end of the operation
};

// What a call needs to know of its surroundings.
struct Call {
  device::Stream& stream;
  const std::atomic<bool>& stopped;  // when it becomes true the operation ends with CANCELLED
};

class Communicator {  // of one rank; operations by one thread at a time
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Everybody is here.
  absl::Status Barrier(const Call& call);
  // This rank's block goes to all others; blocks[r] receives rank r's. blocks[rank()] is not touched.
  absl::Status AllGather(const Call& call, SendBlock own, std::span<const ReceiveBlock> blocks);
  // to[r] goes to rank r, from[r] receives what rank r has for this one. Those of rank() itself are not touched.
  absl::Status AllToAll(const Call& call, std::span<const SendBlock> to, std::span<const ReceiveBlock> from);
  // To rank + 1, from rank - 1, around the ring. Nothing happens with one rank.
  absl::Status Ring(const Call& call, SendBlock to_next, ReceiveBlock from_previous);

  // The group is over: operations of all ranks fail with this. Only the first counts. REQUIRES: not OK. Thread-safe.
  virtual void Fail(const absl::Status& status) = 0;
  // The rank whose fault it is that the group is over; -1: it is not over, or nobody knows. Thread-safe.
  virtual int failed_rank() const { return -1; }
  // This rank is alive and working, however long it takes until its next operation: others wait on. Thread-safe.
  virtual void Beat() = 0;

  const OperationCounters& counters(Operation operation) const { return counters_[static_cast<size_t>(operation)]; }

 protected:
  struct Send {
    int peer = 0;
    SendBlock block;
  };
  struct Receive {
    int peer = 0;
    ReceiveBlock block;
  };

  // device: this rank's; outlives the communicator.
  Communicator(int rank, int ranks, device::Device& device) : rank_(rank), ranks_(ranks), device_(device) {}

  // What every operation comes down to: all blocks at once, at most one to and one from each peer. A block of no bytes
  // tells the peer that this rank has come. The stream's work is done.
  virtual absl::Status Exchange(Operation operation, const Call& call, std::span<const Send> sends,
                                std::span<const Receive> receives) = 0;

  device::Device& device() const { return device_; }

 private:
  absl::Status Run(Operation operation, const Call& call);

  const int rank_;
  const int ranks_;
  device::Device& device_;
  OperationCounters counters_[kOperations];
  // Of the operation that is running.
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
};

}  // namespace moestro::collective
