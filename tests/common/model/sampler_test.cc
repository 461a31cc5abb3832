#include "common/model/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro::model {
namespace {

using ::testing::HasSubstr;

constexpr float kMasked = -std::numeric_limits<float>::infinity();

int32_t SampleId(const std::vector<float>& logits, const Sampling& params, uint64_t index) {
  const auto token = Sample(logits, params, index);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.ok() ? token->id : -1;
}

// Chi-square of `draws` samples against the expected probabilities (those of 0 must not occur).
double ChiSquare(const std::vector<float>& logits, const Sampling& params, const std::vector<double>& expected,
                 int draws) {
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) ++counts[SampleId(logits, params, i)];
  double chi_square = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << "token " << id;
      continue;
    }
    const double mean = expected[id] * draws;
    chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
  }
  return chi_square;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float logit : logits) sum += p.emplace_back(std::exp(logit / temperature));
  for (double& value : p) value /= sum;
  return p;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOnTies) {
  EXPECT_EQ(SampleId({1, 3, 2}, {}, 0), 1);
  EXPECT_EQ(SampleId({1, 3, 3, 3}, {}, 7), 1);
  EXPECT_EQ(SampleId({kMasked, -5, kMasked}, {}, 0), 1);
}

TEST(Sampler, LogprobIsOfTheFullDistribution) {
  const std::vector<float> logits = {0, std::log(3.0f), kMasked};
  const auto greedy = Sample(logits, {}, 0);
  ASSERT_TRUE(greedy.ok());
  EXPECT_NEAR(greedy->logprob, std::log(0.75), 1e-6);
  const auto cold = Sample(logits, {.temperature = 0.01f, .top_k = 1}, 0);
  ASSERT_TRUE(cold.ok());
  EXPECT_NEAR(cold->logprob, std::log(0.75), 1e-6);
}

// 99.9 % quantile of chi-square with 4 degrees of freedom: 18.5.
TEST(Sampler, DrawsFromTheTemperedDistribution) {
  const std::vector<float> logits = {0.5f, -1, 2, 1.5f, 0};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    for (const uint64_t seed : {0ull, 1ull, 2ull, 0xffffffffffffffffull}) {
      EXPECT_LT(ChiSquare(logits, {.temperature = temperature, .seed = seed}, Softmax(logits, temperature), 20000),
                18.5)
          << "temperature " << temperature << " seed " << seed;
    }
  }
}

// One draw for each of many seeds at the same index must be as good as many draws with one seed.
TEST(Sampler, SeedsAreIndependent) {
  const std::vector<float> logits(8, 1.0f);
  std::vector<int> counts(8, 0);
  for (uint64_t seed = 0; seed < 16000; ++seed) ++counts[SampleId(logits, {.temperature = 1, .seed = seed}, 3)];
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - 2000.0) * (count - 2000.0) / 2000.0;
  EXPECT_LT(chi_square, 24.3);  // 99.9 % quantile, 7 degrees of freedom
}

TEST(Sampler, SameSeedAndIndexGiveTheSameToken) {
  const std::vector<float> logits(1000, 0.0f);
  const Sampling params{.temperature = 1, .seed = 42};
  std::map<int32_t, int> seen;
  for (uint64_t index = 0; index < 100; ++index) {
    EXPECT_EQ(SampleId(logits, params, index), SampleId(logits, params, index));
    ++seen[SampleId(logits, params, index)];
  }
  EXPECT_GT(seen.size(), 80u);  // 100 draws of 1000: about 95 different ones
}

TEST(Sampler, TopKKeepsTheBestAndTheLowerIdOnTies) {
  const std::vector<float> logits = {1, 2, 1, 0, 1};
  const double e = std::exp(1.0);
  EXPECT_LT(ChiSquare(logits, {.temperature = 1, .top_k = 2}, {1 / (1 + e), e / (1 + e), 0, 0, 0}, 10000), 10.8);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(SampleId(logits, {.temperature = 5, .top_k = 1}, i), 1);
  EXPECT_LT(ChiSquare(logits, {.temperature = 1, .top_k = 99}, Softmax(logits, 1), 10000), 18.5);
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.15f), std::log(0.25f)};
  EXPECT_LT(ChiSquare(logits, {.temperature = 1, .top_p = 0.7f}, {0, 2.0 / 3, 0, 1.0 / 3}, 10000), 10.8);
  EXPECT_LT(ChiSquare(logits, {.temperature = 1, .top_p = 0.8f}, {0, 5.0 / 9, 1.5 / 9, 2.5 / 9}, 10000), 13.8);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(SampleId(logits, {.temperature = 1, .top_p = 1e-6f}, i), 1);
}

// top_p applies to what top_k left: of {0.5, 0.25} renormalised, the first alone reaches 0.6.
TEST(Sampler, TopPComesAfterTopK) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.15f), std::log(0.25f)};
  for (int i = 0; i < 50; ++i) EXPECT_EQ(SampleId(logits, {.temperature = 1, .top_p = 0.6f, .top_k = 2}, i), 1);
}

// Reached exactly: two of four equal tokens hold exactly half.
TEST(Sampler, TopPBoundaryIsInclusive) {
  EXPECT_LT(ChiSquare({0, 0, 0, 0}, {.temperature = 1, .top_p = 0.5f}, {0.5, 0.5, 0, 0}, 10000), 10.8);
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  std::vector<float> logits(300, kMasked);
  logits[17] = -80;
  logits[250] = -80;
  for (int i = 0; i < 200; ++i) {
    const int32_t id = SampleId(logits, {.temperature = 3}, i);
    EXPECT_TRUE(id == 17 || id == 250) << id;
  }
}

// The ranking is sorted piece by piece, which must not affect the distribution.
TEST(Sampler, LargeFlatVocabulary) {
  const std::vector<float> logits(2000, 0.5f);
  int64_t sum = 0;
  for (int i = 0; i < 4000; ++i) {
    const int32_t id = SampleId(logits, {.temperature = 1, .top_p = 0.5f}, i);
    EXPECT_LT(id, 1000);
    sum += id;
  }
  EXPECT_NEAR(static_cast<double>(sum) / 4000, 499.5, 5 * 288.7 / std::sqrt(4000.0));
}

TEST(Sampler, VeryLowTemperatureIsGreedy) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(SampleId({1, 1.0001f, 0}, {.temperature = 1e-30f}, i), 1);
}

TEST(Sampler, NothingToChooseIsAnError) {
  EXPECT_EQ(Sample(std::vector<float>{kMasked, kMasked}, {}, 0).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Sample(std::vector<float>{}, {}, 0).status().code(), absl::StatusCode::kInternal);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto poisoned = Sample(std::vector<float>{1, nan}, {.temperature = 1}, 0);
  EXPECT_EQ(poisoned.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(poisoned.status().message(), HasSubstr("token 1"));
}

TEST(Sampler, ValidationNamesTheField) {
  const auto error = [](const Sampling& params) {
    const absl::Status status = ValidateSampling(params);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error({.temperature = -1}), HasSubstr("temperature"));
  EXPECT_THAT(error({.temperature = nan}), HasSubstr("temperature"));
  EXPECT_THAT(error({.temperature = std::numeric_limits<float>::infinity()}), HasSubstr("temperature"));
  EXPECT_THAT(error({.top_p = 0}), HasSubstr("top_p"));
  EXPECT_THAT(error({.top_p = 1.5f}), HasSubstr("top_p"));
  EXPECT_THAT(error({.top_p = nan}), HasSubstr("top_p"));
  EXPECT_THAT(error({.top_k = -1}), HasSubstr("top_k"));
  EXPECT_TRUE(ValidateSampling({}).ok());
  EXPECT_TRUE(ValidateSampling({.temperature = 0.7f, .top_p = 0.9f, .top_k = 40, .seed = 1}).ok());
}

TEST(Logprobs, OfOneTokenAndTheBest) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(2.0f), kMasked, std::log(5.0f)};
  const LogprobResult result = ComputeLogprobs(logits, 0, 3);
  EXPECT_NEAR(result.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].id, 4);
  EXPECT_EQ(result.top[1].id, 1);
  EXPECT_EQ(result.top[2].id, 2);
  EXPECT_NEAR(result.top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_NEAR(result.top[2].logprob, std::log(0.2), 1e-6);
}

TEST(Logprobs, MaskedTokensAreNotListed) {
  const LogprobResult result = ComputeLogprobs(std::vector<float>{kMasked, 1, kMasked}, 0, 5);
  EXPECT_EQ(result.logprob, kMasked);
  ASSERT_EQ(result.top.size(), 1u);
  EXPECT_EQ(result.top[0].id, 1);
  EXPECT_FLOAT_EQ(result.top[0].logprob, 0);
  EXPECT_TRUE(ComputeLogprobs(std::vector<float>{1, 2}, 0, 0).top.empty());
}

TEST(Logprobs, LargeLogitsDoNotOverflow) {
  EXPECT_NEAR(ComputeLogprobs(std::vector<float>{3000, 2999}, 1, 0).logprob, -1.313262, 1e-5);
}

}  // namespace
}  // namespace moestro::model
