#include "services/prefill/prompt_costs.h"

#include <gtest/gtest.h>

#include <array>

#include "common/checkpoint/config.h"

namespace moestro::prefill {
namespace {

using roofline::LayerTimes;

// A device that takes so many times as long for everything as another one.
LayerTimes Times(double slowness) {
  LayerTimes times{.form = model::MlaForm::kUnabsorbed,
                   .samples = {{.rows = 256, .dense = 1e-3 * slowness, .moe = 4e-3 * slowness},
                               {.rows = 2048, .dense = 6e-3 * slowness, .moe = 24e-3 * slowness}}};
  times.attention_seconds.fill(1e-14 * slowness);
  return times;
}

// Of two devices with these shares.
PromptCost Cost(std::span<const LayerTimes> times, const std::vector<int64_t>& shares) {
  return StreamedCost(checkpoint::PublishedModel("deepseek-v3"), times, /*alone=*/false, [&](int64_t) {
    return StreamShape{model::MlaForm::kUnabsorbed, {.devices = ProportionalParts(shares)}};
  });
}

double Longest(const PromptCost& cost) { return cost.points.back().seconds; }

TEST(StreamedCostTest, TheSlowestInItsPartDecides) {
  const std::array times{Times(1), Times(3)};
  const auto first = std::span(times).first(1);
  // In equal parts all wait for the second.
  EXPECT_NEAR(Longest(Cost(times, {1, 1})) / Longest(Cost(first, {1, 1})), 3, 0.01);
  EXPECT_NEAR(Cost(times, {1, 1}).seconds_per_pair / Cost(first, {1, 1}).seconds_per_pair, 3, 1e-9);
  // In parts by their speed for nobody; with too small a one for the second, for the first.
  EXPECT_NEAR(Longest(Cost(times, {3, 1})) / Longest(Cost(first, {3, 1})), 1, 0.01);
  EXPECT_DOUBLE_EQ(Longest(Cost(times, {9, 1})), Longest(Cost(first, {9, 1})));
}

TEST(StreamedCostTest, ADeviceWithoutTimesIsAsTheOthers) {
  const std::array times{Times(2)};
  EXPECT_LT(Longest(Cost(times, {1, 1})), Longest(Cost(times, {3, 1})));
  EXPECT_GT(Cost(times, {1, 1}).seconds_per_pair, 0);
}

TEST(PromptCostsTest, PassesHaveAsManyRowsAsTheSlowestReadingNeeds) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  const auto measured = [](double few, double many) {
    InPlaceTimes times;
    times.times.samples = {{.rows = 64, .dense = few, .moe = few}, {.rows = 256, .dense = many, .moe = many}};
    return times;
  };
  const InPlaceTimes computes = measured(0.064, 0.256), reads = measured(0.164, 0.356);  // 0.1 s, and 1 ms a row
  EXPECT_EQ(ChooseChunk(spec, std::vector{computes}, 2), 256);
  EXPECT_GE(ChooseChunk(spec, std::vector{computes, reads}, 2), 1000);
  EXPECT_EQ(ChooseChunk(spec, {}, 2), 256);
  // More rows than were measured: one read for all of them.
  const auto costs = InPlaceCosts(spec, std::vector{reads}, {}, 1024);
  ASSERT_EQ(costs.size(), 1u);
  const auto layers = static_cast<double>(spec.num_layers);
  const double seconds = *SecondsOf(costs[0], 64, 0);
  EXPECT_NEAR(seconds, 0.164 * layers, 0.05 * seconds);
}

}  // namespace
}  // namespace moestro::prefill
