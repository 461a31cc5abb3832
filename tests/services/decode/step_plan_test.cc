#include "services/decode/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::decode {
namespace {

using ::testing::ElementsAre;

StepPlan Plan(const std::vector<int64_t>& pending, int64_t budget) { return PlanStep(pending, budget); }

TEST(StepPlanTest, EveryDecodingSequenceHasARow) {
  const StepPlan plan = Plan({1, 1, 1}, 0);
  EXPECT_THAT(plan.rows, ElementsAre(1, 1, 1));
  EXPECT_EQ(plan.decode_rows, 3);
  EXPECT_EQ(plan.prompt_rows, 0);
}

TEST(StepPlanTest, HalfForTheFirstPromptTheRestForTheShortest) {
  const StepPlan plan = Plan({50, 1, 20, 7}, 16);
  EXPECT_THAT(plan.rows, ElementsAre(8, 1, 1, 7));
  EXPECT_EQ(plan.decode_rows, 1);
  EXPECT_EQ(plan.prompt_rows, 16);
}

TEST(StepPlanTest, AFirstPromptThatIsTheShortestLeavesTheOtherHalf) {
  EXPECT_THAT(Plan({10, 20}, 8).rows, ElementsAre(4, 4));
}

TEST(StepPlanTest, AmongEqualsTheEarlierGoesFirst) {
  EXPECT_THAT(Plan({50, 9, 9, 9}, 20).rows, ElementsAre(10, 9, 1, 0));
}

TEST(StepPlanTest, WhatOthersLeaveGoesToTheFirst) {
  EXPECT_THAT(Plan({50, 3}, 20).rows, ElementsAre(17, 3));
  EXPECT_THAT(Plan({3, 50}, 20).rows, ElementsAre(3, 17));
  EXPECT_THAT(Plan({50}, 20).rows, ElementsAre(20));
  EXPECT_THAT(Plan({4, 4, 4}, 100).rows, ElementsAre(4, 4, 4));
}

TEST(StepPlanTest, TheFirstGetsOnWhateverTheBudget) {
  EXPECT_THAT(Plan({2, 3}, 1).rows, ElementsAre(1, 0));
  EXPECT_THAT(Plan({9, 2, 2, 2}, 3).rows, ElementsAre(2, 1, 0, 0));
}

TEST(StepPlanTest, NothingToDo) { EXPECT_TRUE(Plan({}, 8).rows.empty()); }

}  // namespace
}  // namespace moestro::decode
