#include "services/prefill/stream/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::prefill {
namespace {

int64_t TenPerRow(int64_t rows) { return 10 * rows; }

TEST(MemoryPlan, RingIsAsLongAsFits) {
  MemoryLimits limits{.device_bytes = 1000, .dense_bytes = 100, .min_pass_rows = 10};
  // 100 dense + 10 a row; what is left holds slots of 50.
  const auto slots = [&](int64_t rows) { return PlanMemory(rows, 8, 50, limits, TenPerRow)->ring_slots; };
  EXPECT_EQ(slots(10), 8);
  EXPECT_EQ(slots(50), 8);
  EXPECT_EQ(slots(51), 7);
  EXPECT_EQ(slots(80), 2);
  limits.ring_slots = 3;
  EXPECT_EQ(slots(10), 3);
}

TEST(MemoryPlan, SaysWhatTheLongestRingLeaves) {
  const MemoryLimits limits{.device_bytes = 1000, .dense_bytes = 100, .min_pass_rows = 10};
  const auto spare = [&](int64_t rows) { return PlanMemory(rows, 8, 50, limits, TenPerRow)->spare_bytes; };
  EXPECT_EQ(spare(10), 400);
  EXPECT_EQ(spare(50), 0);
  EXPECT_EQ(spare(51), 40);  // less than a slot
}

TEST(MemoryPlan, PassesOnlyWhereMemoryForcesThem) {
  const MemoryLimits limits{.device_bytes = 1000, .dense_bytes = 100, .min_pass_rows = 40};
  const auto plan = [&](int64_t rows) { return *PlanMemory(rows, 8, 50, limits, TenPerRow); };
  EXPECT_EQ(plan(80).passes, 1);
  EXPECT_EQ(plan(81).passes, 2);
  EXPECT_EQ(plan(81).pass_rows, 41);
  EXPECT_EQ(plan(81).ring_slots, 8);
  EXPECT_EQ(plan(161).passes, 3);
}

TEST(MemoryPlan, NeverShorterPassesThanTheMinimum) {
  const MemoryLimits limits{.device_bytes = 1000, .dense_bytes = 100, .min_pass_rows = 90};
  const auto plan = PlanMemory(179, 8, 50, limits, TenPerRow);
  EXPECT_TRUE(absl::IsResourceExhausted(plan.status()));
  EXPECT_THAT(plan.status().message(), testing::HasSubstr("179 tokens needs 1990 bytes"));
}

TEST(MemoryPlan, NoExperts) {
  EXPECT_EQ(PlanMemory(5, 0, 0, {.device_bytes = 1000, .dense_bytes = 100}, TenPerRow)->ring_slots, 2);
}

}  // namespace
}  // namespace moestro::prefill
