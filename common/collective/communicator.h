// Exchanges between ranks that share one computation: each rank's part is needed by all.
//
// An operation begins after the work so far on its stream. It returns when this rank's part is done: received data are
// in device memory, sent memory may be overwritten. All ranks call the same operations in the same order. Blocks of one
// operation may have any sizes, zero included; sender and receiver must agree on the size.
//
// Errors. If a rank fails, is killed or stalls, the current operation of the other ranks fails with the name of that
// rank. So does every later operation: a failed group stays failed.
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

// Device memory to send from and to receive into.
struct SendBlock {
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
};
struct ReceiveBlock {
  uint8_t* data = nullptr;
  int64_t bytes = 0;
};

// Traffic of an operation over this rank's link: every byte sent to or received from another rank, counted once.
struct OperationCounters {
  int64_t calls = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  double seconds = 0;  // on the device's clock, from the end of the stream's work to the end of the operation
};

// The context of a call.
struct Call {
  device::Stream& stream;
  const std::atomic<bool>& stopped;  // once true, the operation ends with CANCELLED
};

class Communicator {  // one rank's; one thread at a time calls operations
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Returns when all ranks have called it.
  absl::Status Barrier(const Call& call);
  // Sends this rank's block to all others; blocks[r] receives rank r's. blocks[rank()] is not touched.
  absl::Status AllGather(const Call& call, SendBlock own, std::span<const ReceiveBlock> blocks);
  // Sends to[r] to rank r; from[r] receives rank r's block for this rank. Those of rank() itself are not touched.
  absl::Status AllToAll(const Call& call, std::span<const SendBlock> to, std::span<const ReceiveBlock> from);
  // Sends to rank + 1 and receives from rank - 1, around the ring. Does nothing with one rank.
  absl::Status Ring(const Call& call, SendBlock to_next, ReceiveBlock from_previous);

  // Ends the group: operations of all ranks fail with this status. Only the first call counts. REQUIRES: not OK.
  // Thread-safe.
  virtual void Fail(const absl::Status& status) = 0;
  // The rank at fault for the group's failure; -1: no failure, or the rank is unknown. Thread-safe.
  virtual int failed_rank() const { return -1; }
  // Reports that this rank is alive and working, however long it takes until its next operation. Others keep waiting.
  // Thread-safe.
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

  // device: this rank's; must outlive the communicator.
  Communicator(int rank, int ranks, device::Device& device) : rank_(rank), ranks_(ranks), device_(device) {}

  // The primitive of every operation: exchanges all blocks at once, at most one to and one from each peer. An empty
  // block tells the peer that this rank has arrived. The stream's work is done.
  virtual absl::Status Exchange(Operation operation, const Call& call, std::span<const Send> sends,
                                std::span<const Receive> receives) = 0;

  device::Device& device() const { return device_; }

 private:
  absl::Status Run(Operation operation, const Call& call);

  const int rank_;
  const int ranks_;
  device::Device& device_;
  OperationCounters counters_[kOperations];
  // Blocks of the current operation.
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
};

}  // namespace moestro::collective
