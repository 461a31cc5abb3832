// Ranks that are threads of one process, whose devices reach each other's memory (Device::ReachPeer): each rank copies
// what it receives from its sender's memory, once, without the host's. A region tells which ranks are there and when
// their memory is ready.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/collective/communicator.h"
#include "common/collective/shared/shared_communicator.h"

namespace moestro::collective {

class PeerGroup {  // outlives its ranks
 public:
  // REQUIRES: 1 to kMaxRanks ranks.
  explicit PeerGroup(int ranks);

  // The group's first failure, and the rank at fault, as Communicator's: here also while all ranks wait for a copy that
  // hangs. Thread-safe.
  absl::Status failure() const { return memory_.region().failure(); }
  int failed_rank() const { return memory_.region().failed_rank(); }
  // Whether a copy from a peer has failed, which the host's memory may do better. Thread-safe.
  bool copies_failed() const { return copies_failed_; }

 private:
  friend class PeerCommunicator;

  // What a rank has for another one in the current operation.
  struct Offer {
    Operation operation = Operation::kBarrier;
    uint64_t sequence = 0;  // of the operation, from 1
    SendBlock block;
  };
  struct alignas(64) Member {
    std::atomic<int> readers = 0;      // ranks that copy from this one's memory now
    std::atomic<bool> closed = false;  // nobody may begin to: the rank has given up
    std::vector<Offer> offers;         // by receiver
  };

  const HeapRegion memory_;
  std::vector<Member> members_;
  std::atomic<bool> copies_failed_ = false;
};

// As JoinRegion. An operation that fails returns when no other rank copies from this one's memory any more: a device
// that hangs in such a copy keeps it.
absl::StatusOr<std::unique_ptr<Communicator>> JoinPeers(PeerGroup& group, int rank, device::Device& device,
                                                        const SharedOptions& options = {});

// Whether each device reaches all others, and copies from them what is there. UNAVAILABLE says which does not; some
// machines claim to copy between GPUs and deliver other bytes. Errors of the devices.
absl::Status CheckPeers(std::span<device::Device* const> devices);

}  // namespace moestro::collective
