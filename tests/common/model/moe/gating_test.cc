#include "common/model/moe/gating.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro::model {
namespace {

using ::testing::ElementsAre;

weights::ModelSpec Spec(int64_t experts, int64_t per_token, int64_t groups, int64_t kept_groups) {
  weights::ModelSpec spec;
  spec.num_experts = experts;
  spec.experts_per_token = per_token;
  spec.num_expert_groups = groups;
  spec.experts_topk_groups = kept_groups;
  spec.norm_topk_prob = 1;
  spec.routed_scaling_factor = 2.5;
  return spec;
}

std::vector<ExpertChoice> Choose(const weights::ModelSpec& spec, const std::vector<float>& logits,
                                 const std::vector<float>& bias) {
  std::vector<ExpertChoice> chosen(spec.experts_per_token);
  EXPECT_TRUE(ChooseExperts(spec, logits, bias, chosen).ok());
  return chosen;
}

std::vector<int32_t> Ids(const std::vector<ExpertChoice>& chosen) {
  std::vector<int32_t> ids;
  for (const ExpertChoice& choice : chosen) ids.push_back(choice.expert);
  return ids;
}

// The logit whose sigmoid is `score`.
float Logit(double score) { return static_cast<float>(std::log(score / (1 - score))); }

std::vector<float> Logits(const std::vector<double>& scores) {
  std::vector<float> logits;
  for (const double score : scores) logits.push_back(Logit(score));
  return logits;
}

TEST(Router, WeightsAreNormalisedAndScaled) {
  const auto chosen = Choose(Spec(4, 2, 1, 1), Logits({0.2, 0.6, 0.1, 0.4}), {0, 0, 0, 0});
  EXPECT_THAT(Ids(chosen), ElementsAre(1, 3));
  EXPECT_NEAR(chosen[0].weight, 1.5, 1e-6);
  EXPECT_NEAR(chosen[1].weight, 1.0, 1e-6);
}

TEST(Router, IdsAreAscendingWhateverTheScores) {
  EXPECT_THAT(Ids(Choose(Spec(5, 3, 1, 1), {1, 5, 2, 4, 3}, {0, 0, 0, 0, 0})), ElementsAre(1, 3, 4));
}

TEST(Router, WithoutNormalisationWeightsAreScaledScores) {
  weights::ModelSpec spec = Spec(3, 2, 1, 1);
  spec.norm_topk_prob = 0;
  const auto chosen = Choose(spec, Logits({0.2, 0.6, 0.4}), {0, 0, 0});
  EXPECT_NEAR(chosen[0].weight, 1.5, 1e-6);
  EXPECT_NEAR(chosen[1].weight, 1.0, 1e-6);
}

TEST(Router, BiasChangesTheChoiceButNotTheWeights) {
  const std::vector<float> logits = Logits({0.6, 0.5, 0.2, 0.3});
  EXPECT_THAT(Ids(Choose(Spec(4, 2, 1, 1), logits, {0, 0, 0, 0})), ElementsAre(0, 1));
  const auto chosen = Choose(Spec(4, 2, 1, 1), logits, {0, 0, 3, 0});
  EXPECT_THAT(Ids(chosen), ElementsAre(0, 2));
  EXPECT_NEAR(chosen[0].weight, 2.5 * 0.6 / 0.8, 1e-6);
  EXPECT_NEAR(chosen[1].weight, 2.5 * 0.2 / 0.8, 1e-6);
}

// Recovering a score as (biased - bias) would give 0 here.
TEST(Router, TinyScoresSurviveLargeBiases) {
  const auto chosen = Choose(Spec(4, 2, 1, 1), {-18, -17, -16, -15}, {9, 9, 0, 0});
  EXPECT_THAT(Ids(chosen), ElementsAre(0, 1));
  EXPECT_NEAR(chosen[0].weight, 2.5 / (1 + std::exp(1.0)), 1e-5);
  EXPECT_NEAR(chosen[1].weight, 2.5 * std::exp(1.0) / (1 + std::exp(1.0)), 1e-5);
}

// Group 0 has the best expert, group 1 the best two together.
TEST(Router, GroupsAreRankedByTheirTwoBest) {
  const std::vector<float> logits = Logits({0.9, 0.1, 0.1, 0.6, 0.5, 0.1});
  EXPECT_THAT(Ids(Choose(Spec(6, 2, 2, 1), logits, std::vector<float>(6, 0))), ElementsAre(3, 4));
}

TEST(Router, GroupRankCountsTheBias) {
  const std::vector<float> logits = Logits({0.9, 0.1, 0.1, 0.6, 0.5, 0.1});
  EXPECT_THAT(Ids(Choose(Spec(6, 2, 2, 1), logits, {0, 0.2f, 0, 0, 0, 0})), ElementsAre(0, 1));
}

// With 0 instead of -inf for masked experts, expert 0 would beat the negative scores of the kept group.
TEST(Router, MaskedGroupsNeverBeatNegativeScores) {
  const std::vector<float> logits = Logits({0.5, 0.5, 0.5, 0.5});
  EXPECT_THAT(Ids(Choose(Spec(4, 2, 2, 1), logits, {-3, -3, -2, -2})), ElementsAre(2, 3));
}

TEST(Router, TiesGoToTheLowerExpert) {
  EXPECT_THAT(Ids(Choose(Spec(6, 3, 1, 1), {0, 1, 0, 0, 1, 0}, std::vector<float>(6, 0))), ElementsAre(0, 1, 4));
}

TEST(Router, TiesGoToTheLowerGroup) {
  EXPECT_THAT(Ids(Choose(Spec(8, 2, 4, 2), std::vector<float>(8, 0.25f), std::vector<float>(8, 0))), ElementsAre(0, 1));
  // Groups 1 and 3 tie for the second place behind group 2.
  EXPECT_THAT(Ids(Choose(Spec(8, 4, 4, 2), {0, 0, 1, 1, 2, 2, 1, 1}, std::vector<float>(8, 0))),
              ElementsAre(2, 3, 4, 5));
}

TEST(Router, GroupsOfOneExpert) {
  EXPECT_THAT(Ids(Choose(Spec(4, 2, 4, 2), {0, 3, 1, 2}, std::vector<float>(4, 0))), ElementsAre(1, 3));
}

TEST(Router, DeepSeekV3Shape) {
  const weights::ModelSpec spec = Spec(256, 8, 8, 4);
  std::vector<float> logits(256, -4);
  for (int group = 0; group < 8; ++group) {  // the higher the group, the better its best two experts
    logits[group * 32 + 5] = 0.1f * group;
    logits[group * 32 + 31] = 0.1f * group - 0.05f;
  }
  const auto chosen = Choose(spec, logits, std::vector<float>(256, 2));
  EXPECT_THAT(Ids(chosen), ElementsAre(4 * 32 + 5, 4 * 32 + 31, 5 * 32 + 5, 5 * 32 + 31, 6 * 32 + 5, 6 * 32 + 31,
                                       7 * 32 + 5, 7 * 32 + 31));
  double sum = 0;
  for (const ExpertChoice& choice : chosen) sum += choice.weight;
  EXPECT_NEAR(sum, 2.5, 1e-5);
}

TEST(Router, AllScoresZeroGiveZeroWeights) {
  const float low = -std::numeric_limits<float>::infinity();
  const auto chosen = Choose(Spec(3, 2, 1, 1), {low, low, low}, {0, 1, 2});
  EXPECT_THAT(Ids(chosen), ElementsAre(1, 2));
  EXPECT_EQ(chosen[0].weight, 0);
}

TEST(Router, NanIsAnError) {
  std::vector<ExpertChoice> chosen(1);
  const std::vector<float> logits = {0, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> bias = {0, 0};
  const absl::Status status = ChooseExperts(Spec(2, 1, 1, 1), logits, bias, chosen);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("expert 1"));
}

// Qwen3-MoE: softmax over all experts, then the largest.
weights::ModelSpec SoftmaxSpec(int64_t experts, int64_t per_token) {
  weights::ModelSpec spec = Spec(experts, per_token, 1, 1);
  spec.softmax_router = 1;
  spec.routed_scaling_factor = 1;
  return spec;
}

TEST(Router, SoftmaxOverAllExpertsWithoutABias) {
  const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), std::log(2.0f), std::log(8.0f)};
  weights::ModelSpec spec = SoftmaxSpec(4, 2);
  auto chosen = Choose(spec, logits, {});
  EXPECT_THAT(Ids(chosen), ElementsAre(1, 3));
  EXPECT_NEAR(chosen[0].weight, 5.0 / 13, 1e-6);
  EXPECT_NEAR(chosen[1].weight, 8.0 / 13, 1e-6);
  spec.norm_topk_prob = 0;
  chosen = Choose(spec, logits, {});
  EXPECT_NEAR(chosen[0].weight, 5.0 / 16, 1e-6);
  EXPECT_NEAR(chosen[1].weight, 8.0 / 16, 1e-6);
}

// DeepSeek-V2: group 0 has the best expert, group 1 the best two together.
TEST(Router, GroupsAreRankedByTheirBest) {
  weights::ModelSpec spec = SoftmaxSpec(6, 2);
  spec.num_expert_groups = 3;
  spec.experts_topk_groups = 1;
  const std::vector<float> logits = {std::log(8.0f), std::log(1.0f), std::log(6.0f),
                                     std::log(5.0f), std::log(4.0f), std::log(0.5f)};
  EXPECT_THAT(Ids(Choose(spec, logits, {})), ElementsAre(2, 3));
  spec.largest_of_group = 1;
  EXPECT_THAT(Ids(Choose(spec, logits, {})), ElementsAre(0, 1));
  spec.experts_topk_groups = 2;
  EXPECT_THAT(Ids(Choose(spec, logits, {})), ElementsAre(0, 2));
}

TEST(Router, TiesOfTheBestGoToTheLowerGroup) {
  weights::ModelSpec spec = SoftmaxSpec(8, 4);
  spec.num_expert_groups = 4;
  spec.experts_topk_groups = 2;
  spec.largest_of_group = 1;
  // Groups 1 and 3 tie for the second place behind group 2, whatever their second experts.
  EXPECT_THAT(Ids(Choose(spec, {0, 0, 1, 0, 2, 2, 1, 1}, {})), ElementsAre(2, 3, 4, 5));
}

// Scores of chosen experts, scaled as they are: their sum depends on the experts that were not chosen.
TEST(Router, DeepSeekV2Shape) {
  weights::ModelSpec spec = SoftmaxSpec(160, 6);
  spec.num_expert_groups = 8;
  spec.experts_topk_groups = 3;
  spec.largest_of_group = 1;
  spec.norm_topk_prob = 0;
  spec.routed_scaling_factor = 16;
  std::vector<float> logits(160, 0);
  for (const int expert : {25, 70, 71, 145, 146, 147, 148}) logits[expert] = std::log(4.0f);
  logits[26] = logits[150] = std::log(2.0f);
  logits[5] = logits[6] = std::log(3.0f);  // their group is the fourth
  const auto chosen = Choose(spec, logits, {});
  EXPECT_THAT(Ids(chosen), ElementsAre(25, 70, 71, 145, 146, 147));
  const double sum = 149 + 7 * 4 + 2 * 2 + 2 * 3;
  for (const ExpertChoice& choice : chosen) EXPECT_NEAR(choice.weight, 16 * 4 / sum, 1e-6);
}

TEST(Router, SoftmaxOfLargeLogitsAndTies) {
  const auto chosen = Choose(SoftmaxSpec(5, 2), {-300, 200, 200, 200, -100}, {});
  EXPECT_THAT(Ids(chosen), ElementsAre(1, 2));
  EXPECT_FLOAT_EQ(chosen[0].weight, 0.5);
}

TEST(Router, SoftmaxOfNanIsAnError) {
  std::vector<ExpertChoice> chosen(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& logits : {std::vector<float>{1, nan, 0}, {nan, 1, 0}, {0, 1, nan}}) {
    EXPECT_EQ(ChooseExperts(SoftmaxSpec(3, 1), logits, {}, chosen).code(), absl::StatusCode::kInternal);
  }
}

std::vector<ExpertChoice> Next(const weights::ModelSpec& spec, const std::vector<float>& logits,
                               const std::vector<float>& bias, int64_t count) {
  std::vector<ExpertChoice> next(static_cast<size_t>(count));
  NextExperts(spec, logits, bias, Choose(spec, logits, bias), next);
  return next;
}

TEST(NextExperts, WeighWhatTheyWouldBesideTheChosenOnes) {
  const auto next = Next(Spec(5, 2, 1, 1), Logits({0.2, 0.6, 0.1, 0.4, 0.3}), {0, 0, 0, 0, 0}, 2);
  EXPECT_THAT(Ids(next), ElementsAre(0, 4));
  EXPECT_NEAR(next[0].weight, 0.5, 1e-6);
  EXPECT_NEAR(next[1].weight, 0.75, 1e-6);
}

TEST(NextExperts, AreRankedByBiasedScoresInAnyGroup) {
  // Experts 0 and 1 are the better group. 3 is better than both by itself.
  const weights::ModelSpec spec = Spec(4, 1, 2, 1);
  const std::vector<float> logits = Logits({0.5, 0.4, 0.1, 0.6});
  EXPECT_THAT(Ids(Choose(spec, logits, {0, 0, 0, 0})), ElementsAre(0));
  EXPECT_THAT(Ids(Next(spec, logits, {0, 0, 0, 0}, 1)), ElementsAre(3));
  EXPECT_THAT(Ids(Next(spec, logits, {0.3f, 0.3f, 0, 0}, 1)), ElementsAre(1));
}

TEST(NextExperts, OfEqualScoresTheLowerIdComesFirst) {
  EXPECT_THAT(Ids(Next(Spec(5, 1, 1, 1), {1, 1, 1, 1, 1}, {}, 2)), ElementsAre(1, 2));
}

TEST(NextExperts, NanComesLastAndWeighsNothing) {
  const std::vector<float> logits = {1, std::numeric_limits<float>::quiet_NaN(), 0, -1};
  std::vector<ExpertChoice> next(3);
  NextExperts(Spec(4, 1, 1, 1), logits, {}, std::vector<ExpertChoice>{{0, 1}}, next);
  EXPECT_THAT(Ids(next), ElementsAre(1, 2, 3));
  EXPECT_EQ(next[0].weight, 0);
  NextExperts(Spec(4, 1, 1, 1), logits, {}, std::vector<ExpertChoice>{{0, 1}}, std::span(next).first(2));
  EXPECT_EQ(next[0].expert, 2);
}

}  // namespace
}  // namespace moestro::model
