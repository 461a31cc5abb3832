#include <gtest/gtest.h>

#include <thread>

#include "common/collective/sim/sim_communicator.h"
#include "common/device/sim/sim_device.h"

namespace moestro::collective {
namespace {

constexpr SimLink kLink{.bytes_per_second = 1e9, .seconds = 1e-3};

void RunSimRanks(int ranks, const std::function<void(Communicator& communicator, device::Device& device)>& body) {
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<device::Device*> pointers;
  for (int r = 0; r < ranks; ++r) {
    devices.push_back(device::NewSimDevice({.name = "test", .copy_bytes_per_second = 1e9}));
    pointers.push_back(devices.back().get());
  }
  const auto group = NewSimGroup(kLink, pointers);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { body(*group[r], *devices[r]); });
  for (std::thread& thread : threads) thread.join();
}

TEST(SimExchange, BeginsWithTheLastRankAndTakesTheLinksTime) {
  RunSimRanks(3, [](Communicator& communicator, device::Device& device) {
    const auto stream = device.NewStream("exchange").value();
    const std::atomic<bool> stopped = false;
    device.AdvanceTo(communicator.rank());  // seconds
    const ReceiveBlock from[3] = {{nullptr, 1'000'000}, {nullptr, 2'000'000}, {nullptr, 3'000'000}};
    const int64_t own = from[communicator.rank()].bytes;
    ASSERT_TRUE(communicator.AllGather({*stream, stopped}, {nullptr, own}, from).ok());
    const int64_t busiest = std::max(2 * own, 6'000'000 - own);
    EXPECT_DOUBLE_EQ(device.Now(), 2 + 1e-3 + static_cast<double>(busiest) / 1e9);
    EXPECT_EQ(communicator.counters(Operation::kAllGather).sent_bytes, 2 * own);
  });
}

TEST(SimExchange, WaitsForTheStream) {
  RunSimRanks(2, [](Communicator& communicator, device::Device& device) {
    const auto stream = device.NewStream("exchange").value();
    const std::atomic<bool> stopped = false;
    const int64_t bytes = communicator.rank() == 0 ? 5'000'000'000 : 0;
    ASSERT_TRUE(stream->CopyToHost(nullptr, nullptr, bytes).ok());
    ASSERT_TRUE(communicator.Barrier({*stream, stopped}).ok());
    EXPECT_DOUBLE_EQ(device.Now(), 5 + 1e-3);
  });
}

TEST(SimExchange, FailsTogether) {
  RunSimRanks(2, [](Communicator& communicator, device::Device& device) {
    const auto stream = device.NewStream("exchange").value();
    const std::atomic<bool> stopped = false;
    if (communicator.rank() == 1) return communicator.Fail(absl::InternalError("no"));
    EXPECT_EQ(communicator.Barrier({*stream, stopped}).code(), absl::StatusCode::kInternal);
  });
}

}  // namespace
}  // namespace moestro::collective
