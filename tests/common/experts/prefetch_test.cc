#include "common/experts/prefetch.h"

#include <gtest/gtest.h>

#include "tests/common/experts/schedules.h"

namespace moestro::experts {
namespace {

// HybriMoE's Fig. 5: the device takes 1 for an expert, the CPU 1 for a row.
const ExpertCosts kCosts = {.host = SecondsByRows({1, 2, 4, 8}), .device = SecondsByRows({1, 1, 1, 1}), .load = 100};

// rows: of experts 0, 1, ...; negative: held.
void Fill(std::vector<ExpertUse>& uses, const std::vector<int32_t>& rows) {
  uses.clear();
  for (const int32_t count : rows) {
    uses.push_back({.expert = static_cast<int32_t>(uses.size()), .rows = std::abs(count), .slot = count < 0 ? 0 : -1});
  }
}

TEST(ImpactPrefetch, TakesTheExpertThatShortensItsLayerMost) {
  ImpactPrefetch prefetch(Schedule::kHybrid, 8);
  Fill(prefetch.layer(1), {2, 3});  // 5 on the CPU; 2 if expert 1 is held
  Fill(prefetch.layer(2), {6, 1});  // 7; 1
  prefetch.Begin(2, {.costs = kCosts});
  auto choice = prefetch.Next();
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->ahead, 2);
  EXPECT_EQ(choice->expert, 0);
  prefetch.Take(*choice);
  choice = prefetch.Next();
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->ahead, 1);
  EXPECT_EQ(choice->expert, 1);
}

TEST(ImpactPrefetch, TakesTheNearerLayerIfBothGainTheSame) {
  ImpactPrefetch prefetch(Schedule::kHybrid, 8);
  for (const int64_t ahead : {1, 2, 3}) Fill(prefetch.layer(ahead), {2, 3});
  prefetch.Begin(3, {.costs = kCosts});
  EXPECT_EQ(prefetch.Next()->ahead, 1);
}

TEST(ImpactPrefetch, TakesNothingThatGainsNothing) {
  ImpactPrefetch prefetch(Schedule::kHybrid, 8);
  Fill(prefetch.layer(1), {-1, -2});
  Fill(prefetch.layer(2), {});
  prefetch.Begin(2, {.costs = kCosts});
  EXPECT_FALSE(prefetch.Next().has_value());
  ExpertCosts slow_device = kCosts;
  slow_device.device_start = 10;
  Fill(prefetch.layer(1), {2, 3});
  prefetch.Begin(1, {.costs = slow_device});
  EXPECT_FALSE(prefetch.Next().has_value()) << "the CPU is done before the device begins";
}

// Greedy, but no worse than it says: what is taken makes a layer shorter by its impact, and never longer.
TEST(ImpactPrefetch, EveryChoiceShortensALayer) {
  std::mt19937 random(4);
  int taken = 0;
  for (int i = 0; i < 1000; ++i) {
    const TestLayer layer = RandomLayer(random, 12);
    std::vector<ExpertUse> uses = layer.uses;
    ImpactPrefetch prefetch(Schedule::kHybrid, 64);
    prefetch.layer(1) = uses;
    prefetch.Begin(1, {.costs = layer.costs, .most_loads = layer.most_loads});
    const auto scheduler = NewScheduler(Schedule::kHybrid, 64);
    SchedulePlan plan;
    const auto makespan = [&] {
      scheduler->Plan({.uses = uses, .costs = layer.costs, .most_loads = layer.most_loads}, plan);
      return plan.makespan();
    };
    double before = makespan();
    while (const auto choice = prefetch.Next()) {
      const auto use = std::ranges::find(uses, choice->expert, &ExpertUse::expert);
      ASSERT_NE(use, uses.end());
      ASSERT_FALSE(use->held());
      for (const ExpertUse& other : uses) ASSERT_TRUE(other.held() || other.rows <= use->rows);
      use->slot = 0;
      const double after = makespan();
      ASSERT_LT(after, before);
      before = after;
      prefetch.Take(*choice);
      ++taken;
    }
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace moestro::experts
