#include "common/experts/synthetic_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "common/experts/routing_statistics.h"

namespace moestro::experts {
namespace {

using testing::HasSubstr;

constexpr SyntheticRouting kSmall = {
    .layers = 2, .experts = 32, .per_token = 4, .popularity = 1.5, .drift = 0.1, .sequences = 64, .tokens = 16};

std::vector<model::RoutingStep> Passes(const SyntheticRouting& routing) {
  SyntheticTrace trace(routing);
  std::vector<model::RoutingStep> passes;
  model::RoutingStep step;
  while (trace.Next(step)) passes.push_back(step);
  EXPECT_EQ(std::ssize(passes), trace.passes());
  return passes;
}

RoutingStatistics Statistics(const SyntheticRouting& routing) {
  RoutingStatistics statistics(SyntheticTrace(routing).model());
  for (const model::RoutingStep& step : Passes(routing)) statistics.Add(step);
  return statistics;
}

TEST(SyntheticTrace, HasPromptsAndThenPassesOfAllSequences) {
  SyntheticRouting routing = kSmall;
  routing.sequences = 3;
  routing.tokens = 2;
  routing.prompt_tokens = 5;
  const auto passes = Passes(routing);
  ASSERT_EQ(passes.size(), 5u);
  EXPECT_EQ(passes[2].tokens.size(), 5u);
  EXPECT_EQ(passes[2].tokens[4].sequence, 2u);
  EXPECT_EQ(passes[2].tokens[4].position, 4u);
  EXPECT_TRUE(passes[2].tokens[4].prompt);
  EXPECT_EQ(passes[4].tokens.size(), 3u);
  EXPECT_EQ(passes[4].tokens[1].sequence, 1u);
  EXPECT_EQ(passes[4].tokens[1].position, 6u);
  EXPECT_FALSE(passes[4].tokens[1].prompt);
}

// What the file's reader checks, too: the writer takes every pass.
TEST(SyntheticTrace, EveryPassIsOneOfItsModel) {
  for (const model::RoutingStep& step : Passes(kSmall)) {
    ASSERT_EQ(step.choices.size(), 64u * 2 * 4);
    ASSERT_EQ(step.others.size(), 64u * 2 * 4);
    for (size_t row = 0; row < 64 * 2; ++row) {
      std::set<int32_t> experts;
      float sum = 0, least = 1;
      for (size_t i = 4 * row; i < 4 * row + 4; ++i) {
        experts.insert(step.choices[i].expert);
        experts.insert(step.others[i].expert);
        sum += step.choices[i].weight;
        least = std::min(least, step.choices[i].weight);
      }
      EXPECT_EQ(experts.size(), 8u);
      EXPECT_NEAR(sum, 1, 1e-5);
      for (size_t i = 4 * row; i < 4 * row + 4; ++i) EXPECT_LE(step.others[i].weight, least);
    }
  }
}

TEST(SyntheticTrace, DependsOnItsArgumentsAlone) {
  const auto ids = [](const SyntheticRouting& routing) {
    std::vector<int32_t> all;
    for (const auto& step : Passes(routing)) {
      for (const auto& choice : step.choices) all.push_back(choice.expert);
    }
    return all;
  };
  EXPECT_EQ(ids(kSmall), ids(kSmall));
  SyntheticRouting other = kSmall;
  other.seed = 2;
  EXPECT_NE(ids(kSmall), ids(other));
}

TEST(SyntheticTrace, EarlierLayersForeseeAsTheErrorAllows) {
  SyntheticRouting routing = kSmall;
  routing.layers = 4;
  routing.predicted_layers = 3;
  routing.prediction_error = 0;
  for (const int64_t ahead : {1, 2, 3}) EXPECT_EQ(Statistics(routing).Foreseen(ahead), 1) << ahead;
  routing.prediction_error = 1;
  const RoutingStatistics some = Statistics(routing);
  EXPECT_LT(some.Foreseen(1), 0.8);
  EXPECT_GT(some.Foreseen(1), some.Foreseen(2) + 0.03);
  EXPECT_GT(some.Foreseen(2), some.Foreseen(3) + 0.03);
  routing.prediction_error = 1000;
  EXPECT_NEAR(Statistics(routing).Foreseen(1), 4.0 / 32, 0.03) << "a guess";
  EXPECT_EQ(Statistics(routing).HottestTenth(), some.HottestTenth()) << "choices do not depend on predictions";
}

TEST(SyntheticTrace, WithoutSkewAllExpertsAreAlike) {
  SyntheticRouting routing = kSmall;
  routing.popularity = routing.bias = 0;
  std::vector<double> uses(32);
  for (const auto& step : Passes(routing)) {
    for (const auto& choice : step.choices) ++uses[static_cast<size_t>(choice.expert)];
  }
  const double mean = 64.0 * 16 * 2 * 4 / 32;
  for (const double count : uses) EXPECT_NEAR(count, mean, 6 * std::sqrt(mean));
}

TEST(SyntheticTrace, PopularityMakesSkewAndDriftChange) {
  SyntheticRouting routing = kSmall;
  double cold = 1, accuracy = 1;
  for (const double popularity : {0.0, 1.0, 2.0, 4.0}) {
    routing.popularity = popularity;
    const double share = Statistics(routing).ColdShare();
    EXPECT_LT(share, cold - 0.02) << popularity;
    cold = share;
  }
  for (const double drift : {0.0, 0.3, 1.0}) {
    routing.drift = drift;
    const double right = Statistics(routing).AverageAccuracy();
    EXPECT_LT(right, accuracy - 0.02) << drift;
    accuracy = right;
  }
}

// The skew of the last passes is that of the first ones, however strongly they drift.
TEST(SyntheticTrace, DriftKeepsTheSkew) {
  SyntheticRouting routing = kSmall;
  routing.tokens = 64;
  routing.layers = 8;
  routing.drift = 0;
  const double still = Statistics(routing).ColdShare();
  routing.drift = 0.5;
  EXPECT_NEAR(Statistics(routing).ColdShare(), still, 0.02);
}

TEST(SyntheticTrace, FitsSkewAndPredictability) {
  SyntheticRouting routing = kSmall;
  routing.sequences = 128;
  double last = -1;
  const auto fit = FitRouting(routing, 0.1, 0.8, [&](double done) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, 1);
    last = done;
  });
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->cold_share, 0.1, 0.02);
  EXPECT_NEAR(fit->accuracy, 0.8, 0.02);
  routing.popularity = fit->popularity;
  routing.drift = fit->drift;
  EXPECT_EQ(Statistics(routing).ColdShare(), fit->cold_share);
}

TEST(SyntheticTrace, SaysWhatCannotBeFitted) {
  const auto fit = [](double share, double accuracy) {
    return FitRouting(kSmall, share, accuracy, [](double) {}).status();
  };
  EXPECT_THAT(fit(0.69, 0.7).message(), HasSubstr("when all are alike, wanted 0.690"));
  EXPECT_THAT(fit(0.1, 0.99).message(), HasSubstr("without drift"));
}

TEST(SyntheticTrace, SaysWhatIsOutOfRange) {
  const auto check = [](auto change) {
    SyntheticRouting routing = kSmall;
    change(routing);
    return std::string(CheckRouting(routing).message());
  };
  EXPECT_EQ(check([](auto&) {}), "");
  EXPECT_THAT(check([](auto& r) { r.per_token = 33; }), HasSubstr("32 experts a layer and 33 a token"));
  EXPECT_THAT(check([](auto& r) { r.popularity = 9; }), HasSubstr("popularity: 9, expected 0 to 8"));
  EXPECT_THAT(check([](auto& r) { r.popularity = std::nan(""); }), HasSubstr("popularity"));
  EXPECT_THAT(check([](auto& r) { r.drift = 1.5; }), HasSubstr("drift: 1.5, expected 0 to 1"));
  EXPECT_THAT(check([](auto& r) { r.sequences = 0; }), HasSubstr("sequences: 0"));
  EXPECT_THAT(check([](auto& r) { r.prompt_tokens = 65537; }), HasSubstr("prompt tokens"));
  EXPECT_THAT(check([](auto& r) {
                r.sequences = 65536;
                r.layers = 128;
                r.experts = 256;
              }),
              HasSubstr("sequences * layers * experts"));
}

}  // namespace
}  // namespace moestro::experts
