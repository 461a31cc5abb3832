// Ranks as threads, each with its own host device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/collective/peer/peer_communicator.h"
#include "common/collective/shared/shared_communicator.h"
#include "common/device/host/host_device.h"
#include "gtest/gtest.h"

namespace moestro::collective {

// A rank's context.
struct Rank {
  Rank(const Region& region, int number, const SharedOptions& options)
      : device(device::NewHostDevice({})),
        stream(device->NewStream("exchange").value()),
        communicator(JoinRegion(region, number, *device, options).value()) {}

  // Of ranks that copy from each other's memory.
  Rank(PeerGroup& group, int number, const SharedOptions& options)
      : device(device::NewHostDevice({})),
        stream(device->NewStream("exchange").value()),
        communicator(JoinPeers(group, number, *device, options).value()) {}

  Call call() const { return {*stream, stopped}; }
  Communicator* operator->() const { return communicator.get(); }

  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  std::atomic<bool> stopped = false;
  std::unique_ptr<Communicator> communicator;
};

// Runs `body` as every rank of a group: a region, or peers.
template <typename Group>
void RunRanksOf(Group& group, int ranks, const std::function<void(Rank& rank)>& body, const SharedOptions& options) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(group, r, options);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Of a new group.
inline void RunRanks(int ranks, int64_t slot_bytes, const std::function<void(Rank& rank)>& body,
                     const SharedOptions& options = {}) {
  const HeapRegion memory(ranks, slot_bytes);
  RunRanksOf(memory.region(), ranks, body, options);
}
inline void RunPeers(int ranks, const std::function<void(Rank& rank)>& body, const SharedOptions& options = {}) {
  PeerGroup group(ranks);
  RunRanksOf(group, ranks, body, options);
}

// Time passes only during sleeps.
class SteppedClock final : public device::Clock {
 public:
  double Now() const override { return seconds_.load(); }
  void SleepUntil(double seconds) const override {
    if (on_sleep) on_sleep();
    double now = seconds_.load();
    while (now < seconds && !seconds_.compare_exchange_weak(now, seconds)) {
    }
    std::this_thread::yield();
  }
  std::function<void()> on_sleep;

 private:
  mutable std::atomic<double> seconds_{0};
};

// Bytes that identify their sender and receiver.
inline std::vector<uint8_t> Message(int from, int to, int64_t bytes) {
  std::vector<uint8_t> message(static_cast<size_t>(bytes));
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(31 * from + 101 * to + i * 7 + i / 251);
  return message;
}

// Every operation once, with blocks of odd sizes; DATA_LOSS if anything arrives changed. `bytes` is the size of some
// blocks.
inline absl::Status ExchangeAll(Communicator& communicator, const Call& call, int64_t bytes) {
  const int ranks = communicator.ranks();
  const int self = communicator.rank();
  const int everybody = ranks;  // denotes all ranks as receivers
  const auto size = [&](int from, int to) { return (from + 2 * to) % 3 == 0 ? 0 : bytes * (1 + from) + to; };

  std::vector<uint8_t> own = Message(self, everybody, size(self, everybody));
  std::vector<std::vector<uint8_t>> gathered(static_cast<size_t>(ranks));
  std::vector<ReceiveBlock> from_all;
  for (int r = 0; r < ranks; ++r) {
    gathered[r].resize(static_cast<size_t>(size(r, everybody)));
    from_all.push_back({gathered[r].data(), std::ssize(gathered[r])});
  }
  MOE_RETURN_IF_ERROR(communicator.AllGather(call, {own.data(), std::ssize(own)}, from_all));
  for (int r = 0; r < ranks; ++r) {
    if (r != self && gathered[r] != Message(r, everybody, size(r, everybody))) return absl::DataLossError("all-gather");
  }

  MOE_RETURN_IF_ERROR(communicator.Barrier(call));

  std::vector<std::vector<uint8_t>> sent;
  std::vector<std::vector<uint8_t>> received(static_cast<size_t>(ranks));
  std::vector<SendBlock> to;
  std::vector<ReceiveBlock> from;
  for (int r = 0; r < ranks; ++r) {
    sent.push_back(Message(self, r, size(self, r)));
    received[r].resize(static_cast<size_t>(size(r, self)));
    to.push_back({sent[r].data(), std::ssize(sent[r])});
    from.push_back({received[r].data(), std::ssize(received[r])});
  }
  MOE_RETURN_IF_ERROR(communicator.AllToAll(call, to, from));
  for (int r = 0; r < ranks; ++r) {
    if (r != self && received[r] != Message(r, self, size(r, self))) return absl::DataLossError("all-to-all");
  }

  // A block travels once around the ring and returns.
  std::vector<uint8_t> block = Message(self, self, bytes);
  for (int step = 0; step < ranks; ++step) {
    std::vector<uint8_t> next(block.size());
    MOE_RETURN_IF_ERROR(communicator.Ring(call, {block.data(), bytes}, {next.data(), bytes}));
    if (ranks > 1) block = next;
  }
  return block == Message(self, self, bytes) ? absl::OkStatus() : absl::DataLossError("ring");
}

}  // namespace moestro::collective
