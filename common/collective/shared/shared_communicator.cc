#include "common/collective/shared/shared_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/platform/robust_mutex.h"

namespace moestro::collective {
namespace {

using device::Device;

// Polls before a wait sleeps: an active peer arrives within microseconds.
constexpr int kSpins = 200;
constexpr double kSleepSeconds = 50e-6;

enum : uint32_t { kNoFailure, kWriting };

class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(const Region& region, int rank, Device& device, const SharedOptions& options,
                     device::Registration pinned)
      : Communicator(rank, region.ranks(), device),
        region_(region),
        header_(region.header()),
        clock_(*options.clock),
        timeout_(options.timeout_seconds),
        pinned_(std::move(pinned)) {}

  ~SharedCommunicator() override {
    Member& self = header_.members[rank()];
    self.state.store(RankState::kLeft, std::memory_order_release);
    UnlockRobust(self.alive);
  }

  void Fail(const absl::Status& status) override { Blame(rank(), status); }

  int failed_rank() const override { return region_.failed_rank(); }

  void Beat() override { header_.members[rank()].beats.fetch_add(1, std::memory_order_relaxed); }

 private:
  void Blame(int failed, const absl::Status& status) {
    MOE_CHECK(!status.ok());
    uint32_t none = kNoFailure;
    if (!header_.failure.compare_exchange_strong(none, kWriting)) return;
    header_.failure_code = static_cast<int32_t>(status.code());
    header_.failed_rank = failed;
    const std::string message = absl::StrFormat("rank %d: %s", rank(), status.message());
    const size_t length = std::min(message.size(), sizeof(header_.failure_message) - 1);
    std::memcpy(header_.failure_message, message.data(), length);
    header_.failure_message[length] = 0;
    header_.failure.store(kFailed, std::memory_order_release);
  }

  // One direction of the exchange with a peer.
  struct Transfer {
    int peer = 0;
    uint8_t* data = nullptr;
    int64_t bytes = 0;
    int64_t done = 0;
    bool over = false;  // done; an empty block still takes a slot
    int64_t chunk = 0;  // bytes being copied now; -1: none
  };

  absl::Status Exchange(Operation, const Call& call, std::span<const Send> sends,
                        std::span<const Receive> receives) override {
    header_.members[rank()].operation.store(++sequence_, std::memory_order_release);
    sends_.clear();
    receives_.clear();
    for (const Send& s : sends) sends_.push_back({s.peer, const_cast<uint8_t*>(s.block.data), s.block.bytes});
    for (const Receive& r : receives) receives_.push_back({r.peer, r.block.data, r.block.bytes});
    Patience patience(*this);
    while (true) {
      MOE_RETURN_IF_ERROR(region_.failure());
      if (call.stopped) return absl::CancelledError("the run has been given up");
      const int gone = patience.Gone();  // checked before reading: its last writes are then visible
      MOE_ASSIGN_OR_RETURN(const bool moved, MoveChunks(call.stream));
      if (Over()) return absl::OkStatus();
      if (moved) {
        patience.Reset();
      } else if (gone >= 0) {
        return Give(gone, absl::UnavailableError(absl::StrFormat("rank %d is gone", gone)));
      } else if (const int stalled = patience.Wait(); stalled >= 0) {
        return Give(stalled, absl::DeadlineExceededError(
                                 absl::StrFormat("rank %d has shown no sign of life for %.1f s, in operation %d",
                                                 stalled, timeout_, sequence_)));
      }
    }
  }

  // Never OK. Returns the group's first failure. Another rank may be about to write it: that takes microseconds, or
  // never ends if that rank dies.
  absl::Status Give(int failed, const absl::Status& status) {
    Blame(failed, status);
    const double begin = clock_.Now();
    for (double now = begin; header_.failure.load(std::memory_order_acquire) == kWriting && now - begin < timeout_;
         now = clock_.Now()) {
      clock_.SleepUntil(now + kSleepSeconds);
    }
    const absl::Status first = region_.failure();
    return first.ok() ? status : first;
  }

  bool Over() const {
    return std::ranges::all_of(sends_, &Transfer::over) && std::ranges::all_of(receives_, &Transfer::over);
  }

  // Copies what can be copied now. True if anything was.
  absl::StatusOr<bool> MoveChunks(device::Stream& stream) {
    bool moved = false;
    for (Transfer& send : sends_) {
      send.chunk = -1;
      Channel& channel = region_.channel(rank(), send.peer);
      const uint64_t index = channel.written.load(std::memory_order_relaxed);
      if (send.over || index - channel.read.load(std::memory_order_acquire) >= kSlots) continue;
      send.chunk = std::min(region_.slot_bytes(), send.bytes - send.done);
      channel.headers[index % kSlots] = {sequence_, send.bytes};
      if (send.chunk > 0) {
        MOE_RETURN_IF_ERROR(
            stream.CopyToHost(region_.slot(rank(), send.peer, index), send.data + send.done, send.chunk));
      }
      moved = true;
    }
    for (Transfer& receive : receives_) {
      receive.chunk = -1;
      Channel& channel = region_.channel(receive.peer, rank());
      const uint64_t index = channel.read.load(std::memory_order_relaxed);
      if (receive.over || channel.written.load(std::memory_order_acquire) == index) continue;
      const SlotHeader header = channel.headers[index % kSlots];
      if (header.sequence != sequence_ || header.bytes != receive.bytes) {
        return Give(receive.peer,
                    absl::InternalError(absl::StrFormat(
                        "rank %d sends %d bytes in operation %d, rank %d expects %d bytes in operation %d",
                        receive.peer, header.bytes, header.sequence, rank(), receive.bytes, sequence_)));
      }
      receive.chunk = std::min(region_.slot_bytes(), receive.bytes - receive.done);
      if (receive.chunk > 0) {
        MOE_RETURN_IF_ERROR(
            stream.CopyToDevice(receive.data + receive.done, region_.slot(receive.peer, rank(), index), receive.chunk));
      }
      moved = true;
    }
    if (!moved) return false;
    MOE_RETURN_IF_ERROR(stream.Synchronize());
    for (Transfer& send : sends_) Advance(send, region_.channel(rank(), send.peer).written);
    for (Transfer& receive : receives_) Advance(receive, region_.channel(receive.peer, rank()).read);
    return true;
  }

  static void Advance(Transfer& transfer, std::atomic<uint64_t>& count) {
    if (transfer.chunk < 0) return;
    count.fetch_add(1, std::memory_order_release);
    transfer.done += transfer.chunk;
    transfer.over = transfer.done == transfer.bytes;
  }

  // Watches the ranks that this rank waits for.
  class Patience {
   public:
    explicit Patience(SharedCommunicator& self) : self_(self) { Reset(); }

    void Reset() {
      since_ = self_.clock_.Now();
      beats_ = Beats();
      spins_ = 0;
    }

    // An awaited rank that has left or died, and so will not arrive; -1: none.
    int Gone() const {
      if (spins_ < kSpins) return -1;  // detecting a peer's death may take a little time
      int gone = -1;
      ForAwaited([&](int peer) {
        Member& member = self_.header_.members[peer];
        const RankState state = member.state.load(std::memory_order_acquire);
        bool dead = state == RankState::kLeft;
        if (state == RankState::kJoined && TryLockRobust(member.alive)) {
          UnlockRobust(member.alive);
          dead = true;
        }
        if (dead) gone = peer;
      });
      return gone;
    }

    // Lets some time pass. Returns a rank that exceeded the time-out, or -1.
    int Wait() {
      if (++spins_ < kSpins) {
        std::this_thread::yield();
        return -1;
      }
      const double now = self_.clock_.Now();
      if (const uint64_t beats = Beats(); beats != beats_) {
        beats_ = beats;
        since_ = now;
      }
      if (now - since_ > self_.timeout_) return Stalled();
      self_.clock_.SleepUntil(now + kSleepSeconds);
      return -1;
    }

   private:
    template <typename Visit>
    void ForAwaited(Visit visit) const {
      for (const Transfer& t : self_.sends_) {
        if (!t.over) visit(t.peer);
      }
      for (const Transfer& t : self_.receives_) {
        if (!t.over) visit(t.peer);
      }
    }
    bool HasCome(int member) const {
      return self_.header_.members[member].operation.load(std::memory_order_acquire) >= self_.sequence_;
    }
    // Heartbeats of the ranks that have not reached this operation; the others are waiting themselves.
    uint64_t Beats() const {
      uint64_t sum = 0;
      for (int i = 0; i < self_.ranks(); ++i) {
        if (!HasCome(i)) sum += self_.header_.members[i].beats.load(std::memory_order_relaxed);
      }
      return sum;
    }
    // The rank at fault: one that has not arrived, or one that arrived and makes no progress.
    int Stalled() const {
      int stalled = -1;
      ForAwaited([&](int peer) { stalled = peer; });
      for (int i = 0; i < self_.ranks(); ++i) {
        if (!HasCome(i)) stalled = i;
      }
      return stalled;
    }

    SharedCommunicator& self_;
    double since_ = 0;
    uint64_t beats_ = 0;
    int spins_ = 0;
  };

  const Region region_;
  RegionHeader& header_;
  const device::Clock& clock_;
  const double timeout_;
  const device::Registration pinned_;
  uint64_t sequence_ = 0;  // of the operation
  std::vector<Transfer> sends_;
  std::vector<Transfer> receives_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinRegion(const Region& region, int rank, Device& device,
                                                         const SharedOptions& options) {
  if (rank < 0 || rank >= region.ranks()) {
    return absl::OutOfRangeError(absl::StrFormat("rank %d of %d", rank, region.ranks()));
  }
  Member& self = region.header().members[rank];
  auto absent = RankState::kAbsent;
  if (!TryLockRobust(self.alive)) return absl::AlreadyExistsError(absl::StrFormat("rank %d has already joined", rank));
  if (!self.state.compare_exchange_strong(absent, RankState::kJoined)) {
    UnlockRobust(self.alive);
    return absl::AlreadyExistsError(absl::StrFormat("rank %d has joined before", rank));
  }
  absl::StatusOr<device::Registration> pinned =
      device.Register(region.data(), region.bytes(), device::HostAccess::kReadsAndWrites);
  return std::make_unique<SharedCommunicator>(region, rank, device, options,
                                              pinned.ok() ? *std::move(pinned) : device::Registration());
}

}  // namespace moestro::collective
