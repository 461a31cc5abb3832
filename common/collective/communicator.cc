#include "common/collective/communicator.h"

#include <string>

#include "common/base/check.h"
#include "common/base/status.h"

namespace moestro::collective {

std::string_view OperationName(Operation operation) {
  switch (operation) {
    case Operation::kBarrier:
      return "barrier";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kAllToAll:
      return "all-to-all";
    case Operation::kRing:
      return "ring";
  }
  return "";
}

absl::Status Communicator::Barrier(const Call& call) {
  sends_.clear();
  receives_.clear();
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    sends_.push_back({peer, {}});
    receives_.push_back({peer, {}});
  }
  return Run(Operation::kBarrier, call);
}

absl::Status Communicator::AllGather(const Call& call, SendBlock own, std::span<const ReceiveBlock> blocks) {
  MOE_CHECK(std::ssize(blocks) == ranks_);
  sends_.clear();
  receives_.clear();
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    sends_.push_back({peer, own});
    receives_.push_back({peer, blocks[peer]});
  }
  return Run(Operation::kAllGather, call);
}

absl::Status Communicator::AllToAll(const Call& call, std::span<const SendBlock> to,
                                    std::span<const ReceiveBlock> from) {
  MOE_CHECK(std::ssize(to) == ranks_ && std::ssize(from) == ranks_);
  sends_.clear();
  receives_.clear();
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    sends_.push_back({peer, to[peer]});
    receives_.push_back({peer, from[peer]});
  }
  return Run(Operation::kAllToAll, call);
}

absl::Status Communicator::Ring(const Call& call, SendBlock to_next, ReceiveBlock from_previous) {
  sends_.clear();
  receives_.clear();
  if (ranks_ > 1) {
    sends_.push_back({(rank_ + 1) % ranks_, to_next});
    receives_.push_back({(rank_ + ranks_ - 1) % ranks_, from_previous});
  }
  return Run(Operation::kRing, call);
}

absl::Status Communicator::Run(Operation operation, const Call& call) {
  MOE_RETURN_IF_ERROR(call.stream.Synchronize());
  const double begin = device_.Now();
  if (const absl::Status status = Exchange(operation, call, sends_, receives_); !status.ok()) {
    call.stream.Synchronize().IgnoreError();  // copies in flight use the caller's memory
    return Annotate(status, std::string(OperationName(operation)));
  }
  OperationCounters& counters = counters_[static_cast<size_t>(operation)];
  ++counters.calls;
  for (const Send& send : sends_) counters.sent_bytes += send.block.bytes;
  for (const Receive& receive : receives_) counters.received_bytes += receive.block.bytes;
  counters.seconds += device_.Now() - begin;
  return absl::OkStatus();
}

}  // namespace moestro::collective
