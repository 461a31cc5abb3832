#include "common/experts/expert_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/tensor/dtype.h"
#include "tests/common/experts/choices.h"

namespace moestro::experts {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<int32_t> HitsOf(const ExpertPlanner::Pass& pass) {
  std::vector<int32_t> hits;
  for (const ExpertUse& use : pass.uses) {
    if (use.held()) hits.push_back(use.expert);
  }
  return hits;
}
std::vector<int32_t> Experts(const std::vector<ExpertPlanner::Load>& loads) {
  std::vector<int32_t> experts;
  for (const ExpertPlanner::Load& load : loads) experts.push_back(load.expert);
  return experts;
}
const ExpertPlanner::Pass& Next(ExpertPlanner& planner, const std::vector<int32_t>& ids, int64_t layer = 0) {
  return planner.Next(layer, {.choices = Choices(ids)});
}

TEST(CacheSlots, IsWhatTheBudgetPaysFor) {
  EXPECT_EQ(CacheSlots(999, 100, 3, 8, 0), 3);
  EXPECT_EQ(CacheSlots(899, 100, 3, 8, 0), 2);
  EXPECT_EQ(CacheSlots(999, 100, 3, 8, 1), 2);
  EXPECT_EQ(CacheSlots(1 << 20, 100, 3, 8, 1), 8);
  EXPECT_EQ(CacheSlots(200, 100, 3, 8, 4), 0);
  EXPECT_EQ(CacheSlots(0, 100, 3, 8, 0), 0);
}

TEST(ExpertPlanner, AFixedMappingLoadsTheGreatestWeightsOfAPass) {
  ExpertPlanner planner({.moe_layers = 1, .num_experts = 10, .slots = 4, .most_loads = 2});
  const std::vector<model::ExpertChoice> choices = {{1, 0.5f}, {2, 2}, {3, 1}, {4, 0.25f}};
  EXPECT_THAT(Experts(planner.Next(0, {choices}).behind), ElementsAre(2, 3));
  EXPECT_THAT(Experts(planner.Next(0, {choices}).behind), ElementsAre(1, 4));
  EXPECT_THAT(HitsOf(planner.Next(0, {choices})), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(planner.Clear(), IsEmpty());
  EXPECT_THAT(HitsOf(planner.Next(0, {choices})), IsEmpty());
}

TEST(ExpertPlanner, ALoadThatIsNotKeptIsForThePassOnly) {
  ExpertPlanner planner(
      {.moe_layers = 1, .num_experts = 10, .slots = 1, .most_loads = 2, .schedule = Schedule::kOnDemand});
  const ExpertPlanner::Pass& pass = Next(planner, {1, 2, 3});
  EXPECT_THAT(pass.plan.loads, ElementsAre(0, 1));
  EXPECT_THAT(Experts(pass.loads), ElementsAre(1, 2));
  EXPECT_THAT(HitsOf(Next(planner, {1, 2, 3})), ElementsAre(1));
}

TEST(ExpertPlanner, ALoadForLaterThatWouldNotBeKeptIsNotMade) {
  ExpertPlanner planner({.moe_layers = 1, .num_experts = 10, .slots = 1, .most_loads = 2});
  EXPECT_THAT(Experts(Next(planner, {1, 2}).behind), ElementsAre(1));
  EXPECT_THAT(Next(planner, {1, 2}).behind, IsEmpty());
}

// Costs in the units of HybriMoE's Fig. 5.
ExpertCosts Costs(double load, double between = 0) {
  return {.host = SecondsByRows({1, 2, 4}), .device = SecondsByRows({1, 1, 1}), .load = load, .between = between};
}

TEST(ExpertPlanner, AHybridScheduleLoadsForLaterWhileTheBusIsIdle) {
  ExpertPlanner planner(
      {.moe_layers = 1, .num_experts = 10, .slots = 2, .most_loads = 4, .schedule = Schedule::kHybrid});
  planner.SetCosts(Costs(/*load=*/5));
  EXPECT_THAT(Experts(Next(planner, {1, 2}).behind), ElementsAre(1)) << "the bus is too slow, but it may keep more";
  const auto wait = [&] {
    for (int i = 0; i < 5; ++i) Next(planner, {1});
  };
  wait();
  EXPECT_THAT(Experts(Next(planner, {3, 4}).behind), ElementsAre(3));
  wait();
  planner.Clear();
  planner.SetCosts(Costs(/*load=*/3, /*between=*/4));
  EXPECT_THAT(Experts(Next(planner, {1, 2}).behind), ElementsAre(1, 2)) << "the layer takes 2, what follows 4";
  EXPECT_THAT(Experts(Next(planner, {5, 6}).behind), ElementsAre(5, 6));
}

// A load takes 5, the bus is idle for the 2 that the pass takes.
TEST(ExpertPlanner, ALoadThatTakesLongerThanTheBusIsIdleGoesOnInTheNextPasses) {
  ExpertPlanner planner(
      {.moe_layers = 2, .num_experts = 10, .slots = 1, .most_loads = 4, .schedule = Schedule::kHybrid});
  planner.SetCosts(Costs(/*load=*/5));
  Next(planner, {1, 2});  // expert 1 at once: the layer may keep one
  for (int i = 0; i < 5; ++i) Next(planner, {1});
  const auto expect_part = [&](const ExpertPlanner::Pass& pass, double begin, double end) {
    ASSERT_THAT(pass.behind, SizeIs(1));
    EXPECT_EQ(pass.behind[0].moe_layer, 0);
    EXPECT_EQ(pass.behind[0].expert, 3);
    EXPECT_DOUBLE_EQ(pass.behind[0].begin, begin);
    EXPECT_DOUBLE_EQ(pass.behind[0].end, end);
    EXPECT_EQ(pass.ended, end == 1 ? 1 : 0);
  };
  expect_part(Next(planner, {3, 4}), 0, 0.4);
  expect_part(Next(planner, {5}, /*layer=*/1), 0.4, 0.6);  // while another layer's expert is computed
  const ExpertPlanner::Pass& last = Next(planner, {3, 4});
  EXPECT_THAT(HitsOf(last), IsEmpty()) << "a part is no expert";
  expect_part(last, 0.6, 1);
  EXPECT_THAT(HitsOf(Next(planner, {1, 3})), ElementsAre(3)) << "expert 1 has made room";
  planner.Clear();
  EXPECT_THAT(HitsOf(Next(planner, {3, 4})), IsEmpty());
}

TEST(ExpertPlanner, ALongLoadOfAnExpertThatIsHeldByThenIsGivenUp) {
  ExpertPlanner planner(
      {.moe_layers = 1, .num_experts = 10, .slots = 1, .most_loads = 2, .schedule = Schedule::kHybrid});
  planner.SetCosts(Costs(/*load=*/4));
  Next(planner, {1, 2});
  for (int i = 0; i < 5; ++i) Next(planner, {1});
  EXPECT_THAT(Experts(Next(planner, {3, 4}).behind), ElementsAre(3));
  // Many rows: now the pass itself loads it.
  const std::vector<model::ExpertChoice> many(40, {3, 0.5f});
  EXPECT_THAT(planner.Next(0, {.choices = many}).plan.loads, SizeIs(1));
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(HitsOf(planner.Next(0, {.choices = many})), ElementsAre(3));
  }
  const std::vector<int32_t> others = {5, 6};
  EXPECT_THAT(Experts(Next(planner, others).behind), ElementsAre(5)) << "its slot is spare again";
}

TEST(ExpertPlanner, AHybridScheduleLoadsNothingForLaterThatWouldNotHaveHelped) {
  ExpertPlanner planner(
      {.moe_layers = 1, .num_experts = 10, .slots = 2, .most_loads = 4, .schedule = Schedule::kHybrid});
  ExpertCosts costs = Costs(/*load=*/0.1, /*between=*/9);
  costs.device_start = 1.5;
  planner.SetCosts(costs);
  EXPECT_THAT(Next(planner, {1, 2}).plan.makespan(), 2);
  EXPECT_THAT(Next(planner, {1, 2}).behind, IsEmpty()) << "the device would end at 2.5";
}

TEST(ExpertPlanner, TheSharedExpertOfManyRowsLeavesTheDeviceNoTime) {
  ExpertCosts costs = Costs(/*load=*/0);
  costs.shared = SecondsByRows({0.5, 1, 9});
  ExpertPlanner holding({.moe_layers = 1,
                         .num_experts = 2,
                         .slots = 2,
                         .most_loads = 0,
                         .schedule = Schedule::kHybrid,
                         .policy = Policy::kFirstLayers});
  ASSERT_THAT(holding.Clear(), SizeIs(2));
  holding.SetCosts(costs);
  const std::vector<model::ExpertChoice> choices = Choices({0, 1});
  EXPECT_THAT(holding.Next(0, {.choices = choices, .rows = 1}).plan.makespan(), 1.5) << "one on the device after 0.5";
  EXPECT_THAT(holding.Next(0, {.choices = choices, .rows = 4}).plan.device, IsEmpty());
}

TEST(ExpertPlanner, LoadsAheadWhatMakesTheNextLayersShorter) {
  ExpertPlanner planner(
      {.moe_layers = 3, .num_experts = 10, .slots = 1, .most_loads = 4, .schedule = Schedule::kHybrid});
  planner.SetCosts(Costs(/*load=*/1, /*between=*/2));
  // Of layer 1, expert 7 would get three rows; of layer 2, expert 8 two.
  const std::vector<std::vector<int32_t>> foreseen = {{7, 7, 7, 9}, {8, 8}};
  const ExpertPlanner::Pass& pass = planner.Next(0, {.choices = Choices({1}), .foreseen = foreseen});
  ASSERT_EQ(pass.ahead, 2);
  EXPECT_EQ(pass.behind[0].moe_layer, 1);
  EXPECT_EQ(pass.behind[0].expert, 7);
  EXPECT_EQ(pass.behind[1].moe_layer, 2);
  EXPECT_EQ(pass.behind[1].expert, 8);
  const int64_t slot = pass.behind[0].slot;
  const ExpertPlanner::Pass& next = Next(planner, {7, 9}, 1);
  EXPECT_EQ(next.foreseen_hits, 1);
  ASSERT_THAT(HitsOf(next), ElementsAre(7));
  EXPECT_EQ(next.uses[0].slot, slot);
  EXPECT_EQ(Next(planner, {7, 9}, 1).foreseen_hits, 0) << "it is kept now";
  EXPECT_THAT(HitsOf(Next(planner, {7, 9}, 1)), ElementsAre(7));
}

TEST(ExpertPlanner, LoadsNothingAheadThatDelaysThePass) {
  ExpertPlanner planner({.moe_layers = 2, .num_experts = 10, .slots = 1, .most_loads = 4});
  planner.SetCosts(Costs(/*load=*/5));
  const std::vector<std::vector<int32_t>> foreseen = {{7, 7, 7}};
  EXPECT_EQ(planner.Next(0, {.choices = Choices({1}), .foreseen = foreseen}).ahead, 0);
  EXPECT_EQ(planner.Next(1, {.choices = Choices({1}), .foreseen = foreseen}).ahead, 0) << "there is no next layer";
}

// Weights are recorded in BF16. These differ by less than that, so a plan by exact ones would be another.
TEST(ExpertPlanner, DecidesTheSameFromARecording) {
  std::mt19937 random(1);
  for (const Policy policy : {Policy::kLru, Policy::kMrs}) {
    const ExpertPlanner::Options options = {
        .moe_layers = 1, .num_experts = 12, .slots = 4, .most_loads = 1, .policy = policy};
    ExpertPlanner live(options), replayed(options);
    const auto draw = [&] { return 1 + 1e-3f * static_cast<float>(random() % 8); };
    for (int pass = 0; pass < 500; ++pass) {
      std::vector<model::ExpertChoice> choices, others;
      for (const int32_t id : {0, 4, 8}) choices.push_back({id + static_cast<int32_t>(random() % 4), draw()});
      for (int32_t id = 0; id < 12; ++id) {
        if (std::ranges::find(choices, id, &model::ExpertChoice::expert) == choices.end())
          others.push_back({id, draw()});
      }
      std::vector<model::ExpertChoice> rounded = choices, rounded_others = others;
      for (auto* all : {&rounded, &rounded_others}) {
        for (model::ExpertChoice& choice : *all) choice.weight = FromBf16(ToBf16(choice.weight));
      }
      const ExpertPlanner::Pass& one = live.Next(0, {.choices = choices, .others = others});
      const ExpertPlanner::Pass& other = replayed.Next(0, {.choices = rounded, .others = rounded_others});
      ASSERT_EQ(Experts(one.behind), Experts(other.behind)) << pass;
      ASSERT_EQ(HitsOf(one), HitsOf(other)) << pass;
    }
  }
}

TEST(ExpertPlanner, FirstLayersAreHeldForGood) {
  ExpertPlanner planner({.moe_layers = 4, .num_experts = 6, .slots = 4, .policy = Policy::kFirstLayers});
  EXPECT_EQ(planner.kept(), 12) << "a third of a layer is left";
  for (int i = 0; i < 2; ++i) {
    const auto first = planner.Clear();
    ASSERT_EQ(first.size(), 12);
    const ExpertPlanner::Load last = first.back();
    EXPECT_EQ(last.moe_layer, 1);
    EXPECT_EQ(last.expert, 5);
    const ExpertPlanner::Pass& held = Next(planner, {0, 5}, 1);
    EXPECT_THAT(HitsOf(held), ElementsAre(0, 5));
    EXPECT_EQ(held.uses[1].slot, last.slot);
    EXPECT_THAT(Next(planner, {0, 5}, 2).plan.host, ElementsAre(0, 1));
  }
}

// What the passes before have left on the bus: the next one's inputs wait for it.
TEST(ExpertPlanner, KnowsWhatIsOnTheBus) {
  ExpertPlanner planner({.moe_layers = 1, .num_experts = 10, .slots = 4, .most_loads = 2});
  planner.SetCosts(Costs(/*load=*/5, /*between=*/1));
  EXPECT_EQ(Next(planner, {1}).plan.bus_end, 0);
  EXPECT_EQ(Next(planner, {1, 2}).plan.bus_end, 5 - 1 - 1) << "less what the pass took, and what is between";
  EXPECT_EQ(Next(planner, {1, 2}).plan.bus_end, (3 + 5) - (3 + 1) - 1) << "the pass before waited for the bus";
  EXPECT_EQ(Next(planner, {1, 2}).plan.bus_end, 0);
}

}  // namespace
}  // namespace moestro::experts
