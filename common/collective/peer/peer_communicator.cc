#include "common/collective/peer/peer_communicator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace moestro::collective {
namespace {

using device::Device;

// Copied between two signs of life.
constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kCheckedBytes = int64_t{64} << 10;
constexpr double kReaderSleepSeconds = 50e-6;
constexpr int64_t kSlotBytes = 64;  // of the region, through which no data go

}  // namespace

PeerGroup::PeerGroup(int ranks) : memory_(ranks, kSlotBytes), members_(static_cast<size_t>(ranks)) {
  for (Member& member : members_) member.offers.resize(static_cast<size_t>(ranks));
}

class PeerCommunicator final : public Communicator {
 public:
  PeerCommunicator(PeerGroup& group, std::unique_ptr<Communicator> members, Device& device, const device::Clock& clock)
      : Communicator(members->rank(), members->ranks(), device),
        group_(group),
        members_(std::move(members)),
        clock_(clock) {}

  static absl::StatusOr<std::unique_ptr<Communicator>> Join(PeerGroup& group, int rank, Device& device,
                                                            const SharedOptions& options) {
    MOE_ASSIGN_OR_RETURN(auto members, JoinRegion(group.memory_.region(), rank, device, options));
    return std::make_unique<PeerCommunicator>(group, std::move(members), device, *options.clock);
  }

  void Fail(const absl::Status& status) override { members_->Fail(status); }
  int failed_rank() const override { return members_->failed_rank(); }
  void Beat() override { members_->Beat(); }

 private:
  PeerGroup::Member& member(int rank) const { return group_.members_[static_cast<size_t>(rank)]; }

  // Copies of other ranks' memory: they keep it until the stream has done them.
  class Reading {
   public:
    Reading(PeerCommunicator& self, std::span<const Receive> receives, device::Stream& stream)
        : self_(self), receives_(receives), stream_(stream) {
      for (const Receive& receive : receives_) {
        PeerGroup::Member& from = self_.member(receive.peer);
        ++from.readers;
        if (from.closed) closed_ = receive.peer;
      }
    }
    ~Reading() {
      stream_.Synchronize().IgnoreError();
      for (const Receive& receive : receives_) --self_.member(receive.peer).readers;
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

    // A rank whose memory may be gone; -1: none.
    int closed() const { return closed_; }

   private:
    PeerCommunicator& self_;
    const std::span<const Receive> receives_;
    device::Stream& stream_;
    int closed_ = -1;
  };

  absl::Status Exchange(Operation operation, const Call& call, std::span<const Send> sends,
                        std::span<const Receive> receives) override {
    if (!failure_.ok()) return failure_;
    failure_ = Copy(operation, call, sends, receives);
    if (failure_.ok()) return failure_;
    // From here on nobody begins to read this rank's memory; who has begun will end.
    PeerGroup::Member& self = member(rank());
    self.closed = true;
    while (self.readers > 0) clock_.SleepUntil(clock_.Now() + kReaderSleepSeconds);
    return failure_;
  }

  absl::Status Copy(Operation operation, const Call& call, std::span<const Send> sends,
                    std::span<const Receive> receives) {
    ++sequence_;
    for (const Send& send : sends) {
      member(rank()).offers[static_cast<size_t>(send.peer)] = {operation, sequence_, send.block};
    }
    MOE_RETURN_IF_ERROR(members_->Barrier(call));  // all memory is ready, and stays so until the next one
    int closed = -1;
    {
      const Reading reading(*this, receives, call.stream);
      closed = reading.closed();
      if (closed < 0) MOE_RETURN_IF_ERROR(Read(operation, call, receives));
    }
    MOE_RETURN_IF_ERROR(members_->Barrier(call));  // which fails with the reason of a rank that has given up
    return closed < 0 ? absl::OkStatus() : absl::UnavailableError(absl::StrFormat("rank %d has given up", closed));
  }

  absl::Status Read(Operation operation, const Call& call, std::span<const Receive> receives) {
    int64_t longest = 0;
    for (const Receive& receive : receives) {
      const PeerGroup::Offer& offer = OfferOf(receive);
      if (offer.operation != operation || offer.sequence != sequence_ || offer.block.bytes != receive.block.bytes) {
        return Failed(absl::InternalError(
            absl::StrFormat("rank %d sends %d bytes in operation %d, %s, rank %d expects %d bytes in operation %d, %s",
                            receive.peer, offer.block.bytes, offer.sequence, OperationName(offer.operation), rank(),
                            receive.block.bytes, sequence_, OperationName(operation))));
      }
      longest = std::max(longest, receive.block.bytes);
    }
    for (int64_t done = 0; done < longest; done += kChunkBytes) {
      if (call.stopped) return absl::CancelledError("the run has been given up");
      if (const absl::Status status = ReadChunk(call.stream, receives, done); !status.ok()) {
        group_.copies_failed_ = true;
        return Failed(status);
      }
      Beat();
    }
    return absl::OkStatus();
  }

  absl::Status Failed(const absl::Status& status) {
    Fail(status);
    return status;
  }

  absl::Status ReadChunk(device::Stream& stream, std::span<const Receive> receives, int64_t done) const {
    for (const Receive& receive : receives) {
      const int64_t bytes = std::min(kChunkBytes, receive.block.bytes - done);
      if (bytes <= 0) continue;
      MOE_RETURN_IF_ERROR(stream.CopyFromPeer(receive.block.data + done, OfferOf(receive).block.data + done, bytes));
    }
    return stream.Synchronize();
  }

  const PeerGroup::Offer& OfferOf(const Receive& receive) const {
    return member(receive.peer).offers[static_cast<size_t>(rank())];
  }

  PeerGroup& group_;
  const std::unique_ptr<Communicator> members_;
  const device::Clock& clock_;
  uint64_t sequence_ = 0;  // of the operation
  absl::Status failure_;   // the first, which stays
};

absl::StatusOr<std::unique_ptr<Communicator>> JoinPeers(PeerGroup& group, int rank, Device& device,
                                                        const SharedOptions& options) {
  return PeerCommunicator::Join(group, rank, device, options);
}

namespace {

// Whether `to` copies from `from` what is there; `salt` tells these bytes from others.
absl::Status CheckPeer(Device& to, Device& from, uint8_t salt) {
  std::vector<uint8_t> sent(static_cast<size_t>(kCheckedBytes));
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 7 + i / 251 + salt);
  std::vector<uint8_t> received(sent.size());
  MOE_ASSIGN_OR_RETURN(const device::Memory source, from.Allocate(kCheckedBytes, "a block to copy"));
  MOE_ASSIGN_OR_RETURN(const device::Memory target, to.Allocate(kCheckedBytes, "a copied block"));
  MOE_ASSIGN_OR_RETURN(const auto write, from.NewStream("check of a peer"));
  MOE_ASSIGN_OR_RETURN(const auto read, to.NewStream("check of a peer"));
  MOE_RETURN_IF_ERROR(write->CopyToDevice(source.data(), sent.data(), kCheckedBytes));
  MOE_RETURN_IF_ERROR(write->Synchronize());
  MOE_RETURN_IF_ERROR(read->CopyFromPeer(target.data(), source.data(), kCheckedBytes));
  MOE_RETURN_IF_ERROR(read->CopyToHost(received.data(), target.data(), kCheckedBytes));
  MOE_RETURN_IF_ERROR(read->Synchronize());
  if (received == sent) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(std::string(to.name()), " does not copy what is in the memory of ",
                                             std::string(from.name()),
                                             ", as on machines whose IOMMU (ACS) stands between them"));
}

}  // namespace

absl::Status CheckPeers(std::span<Device* const> devices) {
  for (Device* const to : devices) {
    for (Device* const from : devices) {
      if (to != from) MOE_RETURN_IF_ERROR(to->ReachPeer(*from));
    }
  }
  uint8_t salt = 0;
  for (Device* const to : devices) {
    for (Device* const from : devices) {
      if (to != from) MOE_RETURN_IF_ERROR(CheckPeer(*to, *from, ++salt));
    }
  }
  return absl::OkStatus();
}

}  // namespace moestro::collective
