#include <gtest/gtest.h>

#include "tests/common/collective/ranks.h"

namespace moestro::collective {
namespace {

TEST(SharedExchange, EveryOperationWithAnyRanksSlotsAndSizes) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const int64_t slot_bytes : {1, 64, 1000}) {
      for (const int64_t bytes : {0, 1, 63, 64, 65, 1000, 5003}) {
        if (bytes > 64 * slot_bytes) continue;
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << bytes << " bytes in slots of " << slot_bytes);
        RunRanks(ranks, slot_bytes, [&](Rank& rank) {
          for (int i = 0; i < 3; ++i) EXPECT_EQ(ExchangeAll(*rank.communicator, rank.call(), bytes), absl::OkStatus());
        });
      }
    }
  }
}

TEST(SharedExchange, BytesAreCountedOncePerBlockAndPeer) {
  constexpr int kRanks = 3;
  RunRanks(kRanks, 64, [](Rank& rank) {
    std::vector<uint8_t> own(100 + rank->rank());
    std::vector<uint8_t> others(1000);
    std::vector<ReceiveBlock> blocks;
    for (int r = 0; r < kRanks; ++r) blocks.push_back({others.data() + 200 * r, 100 + r});
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(rank->AllGather(rank.call(), {own.data(), std::ssize(own)}, blocks).ok());
    }
    const OperationCounters& gather = rank->counters(Operation::kAllGather);
    EXPECT_EQ(gather.calls, 5);
    EXPECT_EQ(gather.sent_bytes, 5 * (kRanks - 1) * (100 + rank->rank()));
    EXPECT_EQ(gather.received_bytes, 5 * (303 - (100 + rank->rank())));
    EXPECT_GE(gather.seconds, 0);
    ASSERT_TRUE(rank->Ring(rank.call(), {own.data(), 7}, {others.data(), 7}).ok());
    EXPECT_EQ(rank->counters(Operation::kRing).sent_bytes, 7);
    EXPECT_EQ(rank->counters(Operation::kRing).received_bytes, 7);
    EXPECT_EQ(rank->counters(Operation::kAllToAll).calls, 0);
  });
}

TEST(SharedExchange, BeginsAfterTheWorkOnTheStream) {
  RunRanks(2, 64, [](Rank& rank) {
    std::vector<uint8_t> own(10);
    std::vector<uint8_t> other(10);
    ASSERT_TRUE(rank.stream
                    ->Launch({.name = "fill",
                              .cost = {},
                              .run =
                                  [&](void*) {
                                    std::this_thread::yield();
                                    std::ranges::fill(own, static_cast<uint8_t>(1 + rank->rank()));
                                    return absl::OkStatus();
                                  }})
                    .ok());
    ASSERT_TRUE(rank->Ring(rank.call(), {own.data(), 10}, {other.data(), 10}).ok());
    EXPECT_EQ(other, std::vector<uint8_t>(10, static_cast<uint8_t>(2 - rank->rank())));
  });
}

TEST(Region, SaysWhatIsNone) {
  EXPECT_EQ(Region::Format(nullptr, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Region::Format(nullptr, kMaxRanks + 1).status().code(), absl::StatusCode::kInvalidArgument);
  const HeapRegion memory(2, 64);
  const Region& region = memory.region();
  EXPECT_TRUE(Region::Open(region.data(), region.bytes()).ok());
  EXPECT_FALSE(Region::Open(region.data(), region.bytes() - 4096).ok());
  EXPECT_FALSE(Region::Open(region.data(), 8).ok());
  region.header().slot_bytes = int64_t{1} << 62;
  EXPECT_FALSE(Region::Open(region.data(), Region::Bytes(2, 64)).ok());
  region.header().ranks = -1;
  EXPECT_FALSE(Region::Open(region.data(), Region::Bytes(2, 64)).ok());
}

TEST(Region, ARankJoinsOnce) {
  const HeapRegion memory(2, 64);
  const std::unique_ptr<device::Device> device = device::NewHostDevice({});
  EXPECT_EQ(JoinRegion(memory.region(), 2, *device).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(JoinRegion(memory.region(), -1, *device).status().code(), absl::StatusCode::kOutOfRange);
  auto first = JoinRegion(memory.region(), 1, *device);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(JoinRegion(memory.region(), 1, *device).status().code(), absl::StatusCode::kAlreadyExists);
  first->reset();
  EXPECT_EQ(JoinRegion(memory.region(), 1, *device).status().code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace moestro::collective
