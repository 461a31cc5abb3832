#include "services/decode/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro {
namespace {

using testing::ElementsAre;

StepPlan Plan(const std::vector<int64_t>& pending, int64_t budget) { return PlanStep(pending, budget); }

TEST(StepPlanTest, EveryDecodingSequenceHasARow) {
  const StepPlan plan = Plan({1, 1, 1}, 0);
  EXPECT_THAT(plan.rows, ElementsAre(1, 1, 1));
  EXPECT_EQ(plan.decode_rows, 3);
  EXPECT_EQ(plan.prompt_rows, 0);
}

TEST(StepPlanTest, PromptsShareTheBudgetFirstComeFirstServed) {
  const StepPlan plan = Plan({5, 1, 20, 7}, 16);
  EXPECT_THAT(plan.rows, ElementsAre(5, 1, 11, 0));
  EXPECT_EQ(plan.decode_rows, 1);
  EXPECT_EQ(plan.prompt_rows, 16);
}

TEST(StepPlanTest, APromptThatEndsLeavesTheRestToTheNext) {
  EXPECT_THAT(Plan({4, 4, 4}, 100).rows, ElementsAre(4, 4, 4));
  EXPECT_THAT(Plan({2, 3}, 1).rows, ElementsAre(1, 0));
}

TEST(StepPlanTest, NothingToDo) { EXPECT_TRUE(Plan({}, 8).rows.empty()); }

}  // namespace
}  // namespace moestro
