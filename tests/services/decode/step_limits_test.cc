#include "services/decode/step_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/synthetic_segment.h"

namespace moestro::decode {
namespace {

using ::testing::HasSubstr;

// Every layer takes `first` seconds for a row, and `more` for each further one.
std::vector<MeasuredLayers> Measured(const weights::ModelSpec& spec, double first, double more) {
  const auto layers = static_cast<double>(spec.num_layers);
  MeasuredLayers own;
  for (const int64_t rows : {1, 8, 24, 64, 256}) {
    const double seconds = (first + more * static_cast<double>(rows - 1)) / layers;
    own.times.samples.push_back({.rows = rows, .dense = seconds, .moe = seconds});
  }
  return {own};
}

class StepLimitsTest : public ::testing::Test {
 protected:
  ChosenLimits Choose(double first, double more, int64_t most_chunk = 4096) const {
    return ChooseLimits(config_, spec_, Measured(spec_, first, more), most_chunk);
  }
  const weights::ModelSpec spec_ = SmallSpec();
  DecodeConfig config_;
};

TEST_F(StepLimitsTest, TheBatchIsTheLargestWhoseStepIsShort) {
  EXPECT_EQ(Choose(0.010, 0.010).limits.max_batch, 25) << "250 ms";
  EXPECT_EQ(Choose(0.100, 0.030).limits.max_batch, 11) << "400 ms are four times a step of one";
  EXPECT_EQ(Choose(0.001, 0.001).limits.max_batch, 64);
  EXPECT_EQ(Choose(1, 10).limits.max_batch, 4) << "at least";
  EXPECT_THAT(Choose(0.010, 0.010).reason(),
              HasSubstr("batch up to 25: a step of 25 sequences takes 250 ms, of 1 10 ms"));
}

TEST_F(StepLimitsTest, TheBoundFollowsTheStep) {
  const StepLimits limits = Choose(0.010, 0.010).limits;
  EXPECT_EQ(limits.bound_seconds, 0.05);
  EXPECT_EQ(limits.bound_over_base, 1.5);
  config_.itl_bound_ms = 200;
  const StepLimits set = Choose(0.010, 0.010).limits;
  EXPECT_EQ(set.bound_seconds, 0.2);
  EXPECT_EQ(set.bound_over_base, 0) << "what is set is the bound";
}

TEST_F(StepLimitsTest, RowsOfPromptsShareOneRead) {
  // All of 0.08 s but for a row is reading.
  EXPECT_GT(Choose(0.080, 0.0005).limits.max_chunk_tokens, 1024);
  EXPECT_LE(Choose(0.080, 0.0005).limits.max_chunk_tokens, (1 - 0.08) / 0.0005) << "a step ends within a second";
  EXPECT_EQ(Choose(0.080, 0.0005, /*most_chunk=*/512).limits.max_chunk_tokens, 512);
  EXPECT_EQ(Choose(0.080, 0.0005, /*most_chunk=*/0).limits.max_chunk_tokens, 256) << "as on a device";
  EXPECT_EQ(Choose(0.001, 0.001).limits.max_chunk_tokens, 256);
  config_.max_chunk_tokens = 33;
  EXPECT_EQ(Choose(0.080, 0.0005).limits.max_chunk_tokens, 33);
}

TEST_F(StepLimitsTest, WhatIsSetAndWhatIsNotMeasuredStays) {
  config_.max_batch = 3;
  EXPECT_EQ(Choose(0.001, 0.001).limits.max_batch, 3);
  EXPECT_EQ(RoomToMeasure(config_).max_batch, 3);
  config_ = {};
  EXPECT_EQ(RoomToMeasure(config_).max_batch, 64);
  const ChosenLimits constants = ChooseLimits(config_, spec_, {}, 4096);
  EXPECT_EQ(constants.limits.max_batch, 6);
  EXPECT_EQ(constants.limits.max_chunk_tokens, 256);
  EXPECT_EQ(constants.limits.bound_over_base, 0);
  EXPECT_THAT(constants.reason(), HasSubstr("batch up to 6 (constant"));
  config_.mode = Mode::kThroughput;
  const StepLimits throughput = Choose(0.001, 0.001).limits;
  EXPECT_EQ(throughput.max_batch, 256);
  EXPECT_TRUE(std::isinf(throughput.bound_seconds));
  EXPECT_EQ(throughput.max_chunk_tokens, 1024);
}

TEST_F(StepLimitsTest, FilesOfRequestsLeaveAPlaceWhereLatencyCounts) {
  EXPECT_EQ(BackgroundSequences(config_, {.max_batch = 25}), 24);
  EXPECT_EQ(BackgroundSequences(config_, {.max_batch = 1}), 1);
  config_.mode = Mode::kThroughput;
  EXPECT_EQ(BackgroundSequences(config_, {.max_batch = 256}), 256);
}

}  // namespace
}  // namespace moestro::decode
