#include "common/model/moe/expert_plan.h"

#include "gtest/gtest.h"

namespace moestro::model {
namespace {

TEST(ExpertPlan, SortsByExpertThenRow) {
  const std::vector<ExpertChoice> choices = {{1, 0.1f}, {4, 0.2f}, {0, 0.3f}, {4, 0.4f}, {1, 0.5f}, {2, 0.6f}};
  ExpertPlan plan;
  plan.Sort(choices, 2, 6);
  ASSERT_EQ(plan.experts.size(), 4u);
  const ExpertRows expected[] = {{0, 0, 1}, {1, 1, 2}, {2, 3, 1}, {4, 4, 2}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(plan.experts[i].expert, expected[i].expert);
    EXPECT_EQ(plan.experts[i].begin, expected[i].begin);
    EXPECT_EQ(plan.experts[i].count, expected[i].count);
  }
  const int64_t rows[] = {1, 0, 2, 2, 0, 1};
  const float weights[] = {0.3f, 0.1f, 0.5f, 0.6f, 0.2f, 0.4f};
  ASSERT_EQ(plan.routed.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(plan.routed[i].row, rows[i]);
    EXPECT_EQ(plan.routed[i].weight, weights[i]);
  }
}

}  // namespace
}  // namespace moestro::model
