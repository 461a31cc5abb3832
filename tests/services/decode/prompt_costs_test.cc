#include "services/decode/prompt_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/services/decode/decode_fixture.h"

namespace moestro::decode {
namespace {

// 2 ms a layer for few rows, 4 ms for 256.
const roofline::LayerTimes kTimes{
    .samples = {{.rows = 8, .dense = 0.002, .moe = 0.002}, {.rows = 256, .dense = 0.004, .moe = 0.004}}};

TEST(PromptCostsTest, OneFigureForEachNumberOfSequences) {
  const weights::ModelSpec spec = SmallSpec();
  const auto numbers = [&](int64_t max_batch) {
    std::vector<uint32_t> decoding;
    for (const PromptCost& cost : CostsOf(spec, kTimes, {.bound_seconds = 1, .max_rows = 256}, max_batch, true)) {
      EXPECT_TRUE(IsPlausible(cost));
      EXPECT_TRUE(cost.alone);
      EXPECT_EQ(cost.way, PromptWay::kChunked);
      EXPECT_EQ(cost.points.back().tokens, spec.max_position_embeddings);
      decoding.push_back(cost.decoding);
    }
    return decoding;
  };
  EXPECT_THAT(numbers(1), ::testing::ElementsAre(0, 1));
  EXPECT_THAT(numbers(6), ::testing::ElementsAre(0, 1, 2, 4, 6));
  EXPECT_LE(2 * numbers(1 << 20).size(), kMaxPromptCosts) << "with those of other cores";
}

TEST(PromptCostsTest, EachPointIsThePromptByItself) {
  const weights::ModelSpec spec = SmallSpec();
  const roofline::PromptForecast forecast(spec, kTimes);
  const double bound = 0.0025 * static_cast<double>(spec.num_layers);  // some tens of rows
  for (const PromptCost& cost : CostsOf(spec, kTimes, {.bound_seconds = bound, .max_rows = 256}, 2, false)) {
    for (const PromptCost::Point& point : cost.points) {
      const double expected = forecast.Chunked({.max_rows = 256,
                                                .least = ChunkSizer::kMinRows,
                                                .bound_seconds = ChunkSizer::kTargetShare * bound,
                                                .decoding = cost.decoding},
                                               0, point.tokens);
      EXPECT_NEAR(point.seconds, expected, 1e-9 + 1e-6 * expected) << point.tokens << " beside " << cost.decoding;
    }
  }
}

}  // namespace
}  // namespace moestro::decode
