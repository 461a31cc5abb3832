// Two GPUs that copy from each other's memory, both at once: what no model shows. With one GPU, or where they do not
// reach each other, it is skipped with the reason.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/collective/peer/peer_communicator.h"
#include "common/device/cuda/cuda_device.h"

namespace moestro::collective {
namespace {

constexpr int64_t kBytes = (int64_t{200} << 20) + 3;  // several chunks

std::vector<uint8_t> BytesOf(int rank, int round) {
  std::vector<uint8_t> bytes(static_cast<size_t>(kBytes));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251 + 31 * rank + 101 * round);
  return bytes;
}

// What a rank receives in each of some rounds is what the other one has sent.
absl::Status ExchangeRounds(PeerGroup& group, int rank, device::Device& device) {
  MOE_ASSIGN_OR_RETURN(const auto communicator, JoinPeers(group, rank, device));
  MOE_ASSIGN_OR_RETURN(const auto stream, device.NewStream("exchange"));
  MOE_ASSIGN_OR_RETURN(const device::Memory own, device.Allocate(kBytes, "what is sent"));
  MOE_ASSIGN_OR_RETURN(const device::Memory other, device.Allocate(kBytes, "what is received"));
  std::vector<uint8_t> received(static_cast<size_t>(kBytes));
  const std::atomic<bool> stopped = false;
  for (int round = 0; round < 4; ++round) {
    const std::vector<uint8_t> sent = BytesOf(rank, round);
    MOE_RETURN_IF_ERROR(stream->CopyToDevice(own.data(), sent.data(), kBytes));
    MOE_RETURN_IF_ERROR(communicator->Ring({*stream, stopped}, {own.data(), kBytes}, {other.data(), kBytes}));
    MOE_RETURN_IF_ERROR(stream->CopyToHost(received.data(), other.data(), kBytes));
    MOE_RETURN_IF_ERROR(stream->Synchronize());
    if (received != BytesOf(1 - rank, round)) {
      const absl::Status status = absl::DataLossError("another block than was sent");
      communicator->Fail(status);
      return status;
    }
  }
  return absl::OkStatus();
}

TEST(PeerCheck, TwoGpusExchangeBlocks) {
  std::vector<std::unique_ptr<device::Device>> gpus;
  std::vector<device::Device*> all;
  for (const int ordinal : {0, 1}) {
    auto gpu = device::OpenCudaDevice({.ordinal = ordinal, .memory_bytes = int64_t{1} << 30});
    if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
    all.push_back(gpus.emplace_back(*std::move(gpu)).get());
  }
  if (const absl::Status peers = CheckPeers(all); !peers.ok()) GTEST_SKIP() << peers.message();
  PeerGroup group(2);
  absl::Status statuses[2];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = ExchangeRounds(group, rank, *gpus[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
}

}  // namespace
}  // namespace moestro::collective
