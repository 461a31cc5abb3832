#include "services/decode/pool_plan.h"

#include <gtest/gtest.h>

#include "common/platform/shared_memory.h"

namespace moestro::decode {
namespace {

constexpr int64_t kEverything = int64_t{1} << 50;

// 64 tokens of 1,024 bytes.
const kv::KvGeometry kGeometry{.num_layers = 1, .kv_dim = 512};

TEST(PlanPoolTest, SixteenContextsAsFarAsMemoryGoes) {
  const DecodeConfig config;
  PoolPlan plan = PlanPool(config, 4096, kGeometry, kEverything);
  EXPECT_EQ(plan.pages, 16 * 64);
  EXPECT_EQ(plan.first_pages, 2 * 64) << "two contexts are 8 MiB";
  plan = PlanPool(config, 262144, kGeometry, kEverything);
  EXPECT_EQ(plan.pages, 16 * 4096);
  EXPECT_EQ(plan.first_pages, 1024) << "64 MiB";
  plan = PlanPool(config, 262144, kGeometry, int64_t{100} << 20);
  EXPECT_EQ(plan.pages, 1600);
  plan = PlanPool(config, 262144, kGeometry, int64_t{10} << 20);
  EXPECT_EQ(plan.pages, 160);
  EXPECT_EQ(plan.first_pages, 160);
  for (const int64_t spare : {int64_t{0}, int64_t{-1} << 30}) {
    plan = PlanPool(config, 4096, kGeometry, spare);
    EXPECT_EQ(plan.pages, 1);
    EXPECT_EQ(plan.first_pages, 1);
  }
}

TEST(PlanPoolTest, BatchesHaveAContextForEachSequence) {
  DecodeConfig config;
  config.mode = Mode::kThroughput;
  EXPECT_EQ(PlanPool(config, 4096, kGeometry, kEverything).pages, 256 * 64);
  config.max_batch = 4;
  EXPECT_EQ(PlanPool(config, 4096, kGeometry, kEverything).pages, 16 * 64);
}

TEST(PlanPoolTest, AChosenSizeHasItsMemoryFromTheStart) {
  DecodeConfig config;
  config.kv_tokens = 65;
  const PoolPlan plan = PlanPool(config, 4096, kGeometry, 0);
  EXPECT_EQ(plan.pages, 2);
  EXPECT_EQ(plan.first_pages, 0);
}

TEST(PlanPoolTest, ADeviceHasAPlaceForEveryPage) {
  DecodeConfig config;
  config.device = "host";
  EXPECT_EQ(PlanPool(config, 4096, kGeometry, kEverything).pages, 2 * 64);
  EXPECT_EQ(PlanPool(config, 262144, kGeometry, kEverything).pages, 1024);
  EXPECT_EQ(PlanPool(config, 262144, kGeometry, int64_t{4} << 20).pages, 16);
  EXPECT_EQ(PlanPool(config, 262144, kGeometry, kEverything).first_pages, 0);
}

TEST(PlanPoolTest, ThisMachineHasAReserve) {
  const absl::StatusOr<int64_t> reserve = PoolReserve();
  ASSERT_TRUE(reserve.ok()) << reserve.status();
  EXPECT_GT(*reserve, 0);
  EXPECT_LT(SparePoolBytes(*reserve).value(), SharedMemory::FreeBytes().value());
  EXPECT_LT(SparePoolBytes(int64_t{1} << 60).value(), 0) << "it does not shrink with what is available";
}

TEST(PlanPoolTest, TheReserve) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(PoolReserve(24 * kGib, 20 * kGib), 2 * kGib);
  EXPECT_EQ(PoolReserve(800 * kGib, 700 * kGib), 40 * kGib);
  EXPECT_EQ(PoolReserve(800 * kGib, 3 * kGib), 3 * kGib / 2) << "as in a small control group";
}

}  // namespace
}  // namespace moestro::decode
