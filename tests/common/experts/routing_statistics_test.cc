#include "common/experts/routing_statistics.h"

#include <gtest/gtest.h>

namespace moestro::experts {
namespace {

constexpr int64_t kExperts = 10;
const model::RoutingTraceModel kModel = {.moe_layers = 1, .num_experts = kExperts, .experts_per_token = 1};

// A pass whose token i chooses experts[i], of one layer.
model::RoutingStep Pass(const std::vector<int32_t>& experts, bool prompt = false) {
  model::RoutingStep step;
  for (const int32_t expert : experts) {
    step.tokens.push_back({.prompt = prompt});
    step.choices.push_back({expert, 1});
  }
  return step;
}

TEST(RoutingStatistics, CountsTokensAndExperts) {
  RoutingStatistics statistics(kModel);
  statistics.Add(Pass({3, 3, 4}, /*prompt=*/true));
  statistics.Add(Pass({3}));
  EXPECT_EQ(statistics.passes(), 2);
  EXPECT_EQ(statistics.prompt_tokens(), 3);
  EXPECT_EQ(statistics.generated_tokens(), 1);
  EXPECT_DOUBLE_EQ(statistics.DifferentExperts(), 1.5);
  EXPECT_DOUBLE_EQ(statistics.HottestTenth(), 0.75);
}

TEST(RoutingStatistics, ColdAreTheLastSevenOfTenInPassesThatGenerate) {
  RoutingStatistics statistics(kModel);
  statistics.Add(Pass({7, 7, 7, 7}, /*prompt=*/true));
  // Loads 4, 3, 2 of the first three; 1 of expert 9, which is cold.
  statistics.Add(Pass({5, 5, 5, 5, 2, 2, 2, 8, 8, 9}));
  EXPECT_DOUBLE_EQ(statistics.ColdShare(), 0.1);
  EXPECT_EQ(statistics.AverageAccuracy(), 0) << "nothing was foreseen";
}

TEST(RoutingStatistics, TheAverageFollowsTheLoads) {
  RoutingStatistics statistics(kModel);
  const model::RoutingStep before = Pass({0, 0, 0, 1, 1, 2}), after = Pass({3, 3, 3, 1, 1, 2});
  statistics.Add(before);
  statistics.Add(before);
  EXPECT_DOUBLE_EQ(statistics.AverageAccuracy(), 1);
  statistics.Add(after);  // 0 and 3 changed places
  EXPECT_DOUBLE_EQ(statistics.AverageAccuracy(), 18.0 / 20);
  // Averages: expert 0 3 * 0.7 = 2.1, expert 1 2, expert 2 1, expert 3 0.9: still as foreseen before.
  statistics.Add(after);
  EXPECT_DOUBLE_EQ(statistics.AverageAccuracy(), 26.0 / 30);
  // Expert 3 now has 0.9 * 0.7 + 0.9 = 1.53, expert 0 1.47: 1 is hot, 3 and 0 are warm, 2 is cold.
  statistics.Add(after);
  EXPECT_DOUBLE_EQ(statistics.AverageAccuracy(), (26.0 + 6) / 40);
}

TEST(RoutingStatistics, CountsForeseenChoicesWhereThereIsALayerBefore) {
  const model::RoutingTraceModel model = {
      .moe_layers = 3, .num_experts = kExperts, .experts_per_token = 2, .predicted_layers = 2};
  model::RoutingStep step;
  step.tokens.push_back({});
  for (const int32_t expert : {0, 1, 2, 3, 8, 9}) step.choices.push_back({expert, 1});
  step.predicted.assign(static_cast<size_t>(model.SetAt(1, 0, 1)), 0);
  const auto predict = [&](int64_t layer, int64_t ahead, int expert) {
    step.predicted[static_cast<size_t>(model.SetAt(0, layer, ahead) + expert / 8)] |= 1 << expert % 8;
  };
  predict(1, 1, 2);
  predict(1, 1, 4);
  predict(2, 1, 8);
  predict(2, 1, 9);
  predict(2, 2, 0);
  RoutingStatistics statistics(model);
  statistics.Add(step);
  EXPECT_DOUBLE_EQ(statistics.Foreseen(1), 3.0 / 4);
  EXPECT_DOUBLE_EQ(statistics.Foreseen(2), 0);
  predict(2, 2, 9);
  statistics.Add(step);
  EXPECT_DOUBLE_EQ(statistics.Foreseen(2), 1.0 / 4);
}

}  // namespace
}  // namespace moestro::experts
