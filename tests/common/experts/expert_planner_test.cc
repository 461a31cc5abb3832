#include "common/experts/expert_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::experts {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<model::ExpertChoice> Choices(const std::vector<int32_t>& ids) {
  std::vector<model::ExpertChoice> choices;
  for (const int32_t id : ids) choices.push_back({id, 0.5f});
  return choices;
}

std::vector<int32_t> Hits(const ExpertPlanner::Pass& pass) {
  std::vector<int32_t> hits;
  for (const ExpertUse& use : pass.uses) {
    if (use.held()) hits.push_back(use.expert);
  }
  return hits;
}
std::vector<int32_t> Held(const ExpertPlanner::Pass& pass) {
  std::vector<int32_t> held;
  for (const ExpertPlanner::Held& one : pass.held) held.push_back(pass.uses[static_cast<size_t>(one.place)].expert);
  return held;
}

TEST(CacheSlots, IsWhatTheBudgetPaysFor) {
  EXPECT_EQ(CacheSlots(999, 100, 3, 8, 0), 3);
  EXPECT_EQ(CacheSlots(899, 100, 3, 8, 0), 2);
  EXPECT_EQ(CacheSlots(999, 100, 3, 8, 1), 2);
  EXPECT_EQ(CacheSlots(1 << 20, 100, 3, 8, 1), 8);
  EXPECT_EQ(CacheSlots(200, 100, 3, 8, 4), 0);
  EXPECT_EQ(CacheSlots(0, 100, 3, 8, 0), 0);
}

TEST(ExpertPlanner, AFixedMappingHoldsTheGreatestWeightsOfAPass) {
  ExpertPlanner planner({.moe_layers = 1, .num_experts = 10, .slots = 4, .most_loads = 2});
  const std::vector<model::ExpertChoice> choices = {{1, 0.5f}, {2, 2}, {3, 1}, {4, 0.25f}};
  EXPECT_THAT(Held(planner.Next(0, choices)), ElementsAre(2, 3));
  EXPECT_THAT(Held(planner.Next(0, choices)), ElementsAre(1, 4));
  EXPECT_THAT(Hits(planner.Next(0, choices)), ElementsAre(1, 2, 3, 4));
  planner.Clear();
  EXPECT_THAT(Hits(planner.Next(0, choices)), IsEmpty());
}

TEST(ExpertPlanner, ALoadThatFindsNoSlotIsForThePassOnly) {
  ExpertPlanner planner(
      {.moe_layers = 1, .num_experts = 10, .slots = 1, .most_loads = 2, .schedule = Schedule::kOnDemand});
  const ExpertPlanner::Pass& pass = planner.Next(0, Choices({1, 2, 3}));
  EXPECT_THAT(pass.plan.loads, ElementsAre(0, 1));
  EXPECT_THAT(Held(pass), ElementsAre(1));
  EXPECT_THAT(Hits(planner.Next(0, Choices({1, 2, 3}))), ElementsAre(1));
}

TEST(ExpertPlanner, ALoadForLaterThatFindsNoSlotIsNotMade) {
  ExpertPlanner planner({.moe_layers = 1, .num_experts = 10, .slots = 1, .most_loads = 2});
  EXPECT_THAT(planner.Next(0, Choices({1, 2})).plan.later, ElementsAre(0));
  EXPECT_THAT(planner.Next(0, Choices({1, 2})).plan.later, IsEmpty());
}

TEST(ExpertPlanner, ALayerSplitHoldsTheFirstLayersForGood) {
  ExpertPlanner planner({.moe_layers = 4, .num_experts = 6, .slots = 4, .schedule = Schedule::kLayerSplit});
  EXPECT_EQ(planner.slots(0), 6);
  EXPECT_EQ(planner.slots(1), 6);
  EXPECT_EQ(planner.slots(2), 0) << "a third of a layer is left";
  for (int i = 0; i < 2; ++i) {
    const ExpertPlanner::Pass& held = planner.Next(1, Choices({0, 5}));
    EXPECT_THAT(Hits(held), ElementsAre(0, 5));
    EXPECT_EQ(held.uses[1].slot, 5);
    EXPECT_THAT(planner.Next(2, Choices({0, 5})).plan.host, ElementsAre(0, 1));
    planner.Clear();
  }
}

// What the passes before have left on the bus: the next one's loads begin behind it.
TEST(ExpertPlanner, KnowsWhatIsOnTheBus) {
  ExpertPlanner planner({.moe_layers = 1, .num_experts = 10, .slots = 4, .most_loads = 2});
  planner.SetCosts({.host = SecondsByRows({1}), .device = SecondsByRows({1}), .load = 5});
  EXPECT_EQ(planner.Next(0, Choices({1})).plan.bus_end, 0);
  EXPECT_EQ(planner.Next(0, Choices({1, 2})).plan.bus_end, 5);
  const SchedulePlan& plan = planner.Next(0, Choices({1, 2})).plan;
  EXPECT_EQ(plan.bus_end, 5) << "the first load ended while the device waited, the second is on its way";
  EXPECT_EQ(plan.device_end, 5 + 2);
}

}  // namespace
}  // namespace moestro::experts
