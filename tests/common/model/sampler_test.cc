#include "common/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro::model {
namespace {

using ::testing::HasSubstr;

constexpr float kMasked = -std::numeric_limits<float>::infinity();

absl::StatusOr<Token> Sample(const std::vector<float>& logits, const Sampling& params, uint64_t index) {
  static const std::vector<int32_t> tokens(20000);
  return SampleNext(logits, std::span(tokens).first(index), params, index);
}

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

// The sum of all weights is rounded: a random number near 1 must not reach beyond what the tokens have together, to the
// least likely of all.
TEST(Sampler, RoundingOfTheSumNeverDrawsTheLeastLikely) {
  constexpr uint64_t kSeed =
      92574815;  // of the first 10^8 the one whose first random number is the greatest: 1 - 9.2e-9
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<float> logits(151936);
    for (float& logit : logits) logit = normal(random);
    logits[777] = -80;  // a probability of e^-90
    Sampling params;
    params.temperature = 1;
    params.seed = kSeed;
    const auto token = SampleNext(logits, {}, params, 0);
    ASSERT_TRUE(token.ok());
    EXPECT_NE(token->id, 777) << repeat;
  }
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

// By hand: of the weights 1, 0.5 and 0.2, those of at least 0.2 or 0.3 times the largest stay.
TEST(Sampler, MinPDropsTheUnlikely) {
  const std::vector<float> logits = {std::log(0.5f), std::log(1.0f), std::log(0.2f)};
  const double sum = 1.7;
  EXPECT_LT(ChiSquare(logits, {.temperature = 1, .min_p = 0.19f}, {0.5 / sum, 1 / sum, 0.2 / sum}, 10000), 13.8);
  EXPECT_LT(ChiSquare(logits, {.temperature = 1, .min_p = 0.3f}, {1.0 / 3, 2.0 / 3, 0}, 10000), 10.8);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(SampleId(logits, {.temperature = 1, .min_p = 1}, i), 1);
  // One that has just as much stays.
  EXPECT_LT(ChiSquare({2, 2, 0}, {.temperature = 1, .min_p = 1}, {0.5, 0.5, 0}, 10000), 10.8);
  // After temperature: at 0.5 the weights are 1, 0.25 and 0.04.
  EXPECT_LT(ChiSquare(logits, {.temperature = 0.5f, .min_p = 0.2f}, {0.2, 0.8, 0}, 10000), 10.8);
  // top_p is of the remainder: of 2/3 and 1/3, the first alone reaches 0.6.
  for (int i = 0; i < 50; ++i) EXPECT_EQ(SampleId(logits, {.temperature = 1, .top_p = 0.6f, .min_p = 0.3f}, i), 1);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(SampleId(logits, {.temperature = 1, .top_k = 1, .min_p = 0.1f}, i), 1);
}

Token Next(const std::vector<float>& logits, const std::vector<int32_t>& tokens, const Sampling& params,
           uint64_t index) {
  const auto token = SampleNext(logits, tokens, params, index);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.ok() ? *token : Token{-1, 0};
}

// By hand. The prompt is {0, 0}, the generated tokens are {1, 1, 2}.
TEST(Sampler, PenaltiesCountTheRightTokens) {
  const std::vector<int32_t> tokens = {0, 0, 1, 1, 2};
  // 0: of the prompt, not counted. 1: 4 - 2 * 0.5. 2: 3.2 - 0.5.
  EXPECT_EQ(Next({2.9f, 4, 3.2f, 2.8f}, tokens, {.frequency_penalty = 0.5f}, 3).id, 1);
  EXPECT_EQ(Next({3.1f, 4, 3.2f, 2.8f}, tokens, {.frequency_penalty = 0.5f}, 3).id, 0);
  EXPECT_EQ(Next({2, 4, 3.6f, 2}, tokens, {.frequency_penalty = 0.5f}, 3).id, 2);
  // Once, however often it was generated.
  EXPECT_EQ(Next({3.4f, 4, 3.8f, 2}, tokens, {.presence_penalty = 0.5f}, 3).id, 1);
  EXPECT_EQ(Next({3.6f, 4, 3.8f, 2}, tokens, {.presence_penalty = 0.5f}, 3).id, 0);
  // With three fewer generated, the same tokens are a prompt.
  EXPECT_EQ(Next({3.6f, 4, 3.8f, 2}, tokens, {.presence_penalty = 2, .frequency_penalty = 2}, 0).id, 1);
  // Negative ones encourage.
  EXPECT_EQ(Next({5, 4, 2, 2}, tokens, {.frequency_penalty = -1}, 3).id, 1);
  // Of all tokens, by their sign.
  EXPECT_EQ(Next({4, 3.8f, 3.6f, 2.1f}, tokens, {.repetition_penalty = 2}, 3).id, 3);
  EXPECT_EQ(Next({-1, -1, -1, -1.9f}, tokens, {.repetition_penalty = 2}, 3).id, 3);
  EXPECT_EQ(Next({-1, -2, -2, -0.6f}, tokens, {.repetition_penalty = 0.5f}, 3).id, 0);
}

TEST(Sampler, BiasComesBeforeThePenalties) {
  EXPECT_EQ(Next({1, 2, 3}, {}, {.logit_bias = {{0, 100}}}, 0).id, 0);
  EXPECT_EQ(Next({1, 2, 3}, {}, {.logit_bias = {{2, -100}, {1, -0.5f}}}, 0).id, 1);
  // (1 + 5) / 2 = 3 > 2.9; the other order would give 1 / 2 + 5 = 5.5.
  EXPECT_EQ(Next({1, 2.9f}, {0}, {.repetition_penalty = 2, .logit_bias = {{0, 5}}}, 0).id, 0);
  EXPECT_EQ(Next({1, 3.1f}, {0}, {.repetition_penalty = 2, .logit_bias = {{0, 5}}}, 0).id, 1);
  // A padding id stays one.
  EXPECT_EQ(Next({kMasked, 0}, {1}, {.presence_penalty = 2, .logit_bias = {{1, -100}}}, 1).id, 1);
}

TEST(Sampler, LogprobsAreOfTheModelsOwnDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const Token token =
      Next(logits, {0, 1}, {.repetition_penalty = 5, .logit_bias = {{0, -100}, {2, 50}}, .top_logprobs = 2}, 1);
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_EQ(token.top[0].id, 0);
  EXPECT_NEAR(token.top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(token.top[1].id, 1);
  EXPECT_EQ(Next(logits, {}, {.top_logprobs = 20}, 0).top.size(), 3u) << "there are no more";
  EXPECT_TRUE(Next(logits, {}, {}, 0).top.empty());
}

TEST(Sampler, AMaskLeavesWhatItAllows) {
  std::vector<float> logits(70, 0);
  logits[3] = 9;
  logits[40] = 5;
  logits[69] = 4;
  const auto mask_of = [](std::initializer_list<int> ids) {
    std::vector<uint32_t> mask(3);
    for (const int id : ids) mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return mask;
  };
  const auto next = [&](const Sampling& params, const std::vector<uint32_t>& mask) {
    const auto token = SampleNext(logits, {}, params, 0, mask);
    EXPECT_TRUE(token.ok()) << token.status();
    return token.ok() ? token->id : -1;
  };
  EXPECT_EQ(next({}, {}), 3);
  EXPECT_EQ(next({}, mask_of({40, 69})), 40);
  EXPECT_EQ(next({.logit_bias = {{3, 100}}}, mask_of({69, 2})), 69) << "a bias does not lift it";
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const int32_t id = next({.temperature = 2, .seed = seed}, mask_of({40, 41}));
    EXPECT_TRUE(id == 40 || id == 41) << id;
    EXPECT_EQ(next({.temperature = 2, .seed = seed}, std::vector<uint32_t>(3, ~0u)),
              next({.temperature = 2, .seed = seed}, {}))
        << "a mask that allows everything keeps the bits";
  }
  const auto token = SampleNext(logits, {}, {}, 0, mask_of({69}));
  EXPECT_EQ(token->logprob, Next(logits, {}, {.logit_bias = {{69, 100}}}, 0).logprob) << "of the model";
  EXPECT_TRUE(absl::IsInternal(SampleNext(logits, {}, {}, 0, mask_of({})).status()));
}

// An option at its neutral value changes no draw.
TEST(Sampler, OptionsThatAreOffChangeNothing) {
  std::vector<float> logits;
  for (int i = 0; i < 500; ++i) logits.push_back(std::sin(static_cast<float>(i * i)));
  const std::vector<int32_t> tokens(100, 3);
  for (uint64_t index = 0; index < 100; ++index) {
    Sampling params{.temperature = 1.3f, .top_p = 0.9f, .top_k = 100, .seed = 5};
    const Token plain = Next(logits, tokens, params, index);
    params.logit_bias = {{7, 0.0f}};  // takes the way of all adjustments
    params.min_p = 1e-30f;
    const Token same = Next(logits, tokens, params, index);
    EXPECT_EQ(plain.id, same.id);
    EXPECT_EQ(plain.logprob, same.logprob);
  }
}

// The arithmetic once more, written down as the definitions have it: whole vectors, no ranks, no shortcuts.
std::vector<double> Expected(const std::vector<float>& logits, const std::vector<int32_t>& tokens,
                             const Sampling& params, uint64_t index) {
  std::vector<double> p;
  for (size_t id = 0; id < logits.size(); ++id) {
    double logit = logits[id];
    for (const auto& [biased, bias] : params.logit_bias) logit += biased == static_cast<int32_t>(id) ? bias : 0;
    if (std::ranges::count(tokens, static_cast<int32_t>(id)) > 0) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    const auto count = std::count(tokens.end() - static_cast<ptrdiff_t>(index), tokens.end(), static_cast<int32_t>(id));
    p.push_back(logit - params.frequency_penalty * static_cast<double>(count) -
                (count > 0 ? params.presence_penalty : 0));
  }
  const double most = *std::ranges::max_element(p);
  for (double& value : p) value = std::exp((value - most) / params.temperature);
  for (double& value : p) value = value < params.min_p ? 0 : value;
  std::vector<double> sorted = p;
  std::ranges::sort(sorted, std::greater());
  if (params.top_k > 0) {
    for (double& value : p) value = value < sorted[static_cast<size_t>(params.top_k) - 1] ? 0 : value;
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  const std::vector<double> normal = p;
  for (double& value : p) {  // kept if what is more likely does not reach top_p
    double before = 0;
    for (const double other : normal) before += other > value ? other : 0;
    value = before < params.top_p ? value : 0;
  }
  const double rest = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= rest;
  return p;
}

TEST(Sampler, AgreesWithTheDefinitions) {
  std::mt19937 random(1);
  const auto uniform = [&](float low, float high) { return std::uniform_real_distribution<float>(low, high)(random); };
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    std::vector<float> logits(12);
    for (float& logit : logits) logit = uniform(-3, 3);
    std::vector<int32_t> tokens(8);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % logits.size());
    Sampling params{.temperature = uniform(0.5f, 2),
                    .top_p = uniform(0.3f, 1),
                    .top_k = static_cast<int32_t>(random() % 12),
                    .seed = random(),
                    .min_p = round % 2 == 0 ? 0 : uniform(0, 0.3f),
                    .presence_penalty = uniform(-2, 2),
                    .frequency_penalty = uniform(-2, 2),
                    .repetition_penalty = uniform(0.5f, 2),
                    .logit_bias = {{3, uniform(-5, 5)}, {9, uniform(-5, 5)}}};
    const uint64_t generated = random() % 9;
    const std::vector<double> expected = Expected(logits, tokens, params, generated);
    constexpr int kDraws = 3000;
    std::vector<int> counts(logits.size());
    for (int draw = 0; draw < kDraws; ++draw) {
      params.seed = random();
      ++counts[static_cast<size_t>(Next(logits, tokens, params, generated).id)];
    }
    // Tokens that are expected less than five times count together.
    double chi_square = 0, rare = 0, rare_mean = 0;
    for (size_t id = 0; id < logits.size(); ++id) {
      const double mean = expected[id] * kDraws;
      if (mean == 0) {
        EXPECT_EQ(counts[id], 0) << id;
      } else if (mean < 5) {
        rare += counts[id];
        rare_mean += mean;
      } else {
        chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
      }
    }
    EXPECT_LT(std::abs(rare - rare_mean), 5 * std::sqrt(rare_mean) + 3);
    EXPECT_LT(chi_square, 39);  // exceeded once in 20,000 cases of 11 degrees of freedom
    params.temperature = 0;
    Sampling sharp = params;
    sharp.temperature = 1;
    sharp.top_p = 1;
    sharp.top_k = 0;
    sharp.min_p = 0;
    const std::vector<double> likely = Expected(logits, tokens, sharp, generated);
    EXPECT_EQ(Next(logits, tokens, params, generated).id, std::ranges::max_element(likely) - likely.begin());
  }
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
    const absl::Status status = ValidateSampling(params, 100);
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
  EXPECT_THAT(error({.min_p = 1.5f}), HasSubstr("min_p"));
  EXPECT_THAT(error({.min_p = nan}), HasSubstr("min_p"));
  EXPECT_THAT(error({.presence_penalty = nan}), HasSubstr("presence_penalty"));
  EXPECT_THAT(error({.frequency_penalty = kMasked}), HasSubstr("frequency_penalty"));
  EXPECT_THAT(error({.repetition_penalty = 0}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(error({.repetition_penalty = nan}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(error({.logit_bias = {{100, 1.0f}}}), HasSubstr("logit_bias of token 100"));
  EXPECT_THAT(error({.logit_bias = {{-1, 1.0f}}}), HasSubstr("logit_bias of token -1"));
  EXPECT_THAT(error({.logit_bias = {{1, nan}}}), HasSubstr("logit_bias of token 1"));
  EXPECT_TRUE(ValidateSampling({}, 100).ok());
  EXPECT_TRUE(ValidateSampling({.temperature = 0.7f, .top_p = 0.9f, .top_k = 40, .seed = 1}, 100).ok());
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

// However far behind the most likely one: those are ranked only if they are asked for.
TEST(Logprobs, TheUnlikelyAreListedInOrder) {
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {-40, 3, -100, minus_infinity, -13, -13.5f, 3, -3e38f, -14};
  std::vector<int32_t> ids;
  for (const TokenAlternative& token : ComputeLogprobs(logits, 1, 20).top) ids.push_back(token.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 6, 4, 5, 8, 0, 2, 7}));
}

TEST(Sampler, DrawsWhatIsFarBehindAtAHighTemperature) {
  const std::vector<float> logits = {0, -30, -60, -90};
  std::vector<int> drawn(logits.size());
  for (uint64_t index = 0; index < 1000; ++index) {
    ++drawn[static_cast<size_t>(SampleNext(logits, {}, {.temperature = 1e6f, .seed = 1}, index)->id)];
  }
  // 250 each, with a deviation of 14.
  for (const int count : drawn) EXPECT_NEAR(count, 250, 70);
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
