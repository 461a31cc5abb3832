#include "common/roofline/pass_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/checkpoint/config.h"

namespace moestro::roofline {
namespace {

// A machine that reads a layer's weights in `read` and computes a row in `row` seconds.
struct ReadingMachine {
  double read = 0;
  double row = 0;
};

// What it measures with few and many rows of a model with these experts, whose other weights are small.
LayerTimes Measured(const weights::ModelSpec& spec, const ReadingMachine& machine) {
  LayerTimes times;
  for (const int64_t rows : {1, 8, 24, 64, 256}) {
    const double met =
        1 - std::pow(1 - static_cast<double>(spec.experts_per_token) / static_cast<double>(spec.num_experts),
                     static_cast<double>(rows));
    const double compute = machine.row * static_cast<double>(rows);
    times.samples.push_back(
        {.rows = rows, .dense = machine.read + compute, .moe = machine.read * (0.02 + 0.98 * met) + compute});
  }
  return times;
}

const weights::ModelSpec& Model() {
  static const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  return spec;
}

TEST(PassRowsTest, FindsWhatReadingTakesAlthoughFewRowsMeetSomeExpertsOnly) {
  const PassTimes pass = PassTimesOf(Model(), Measured(Model(), {.read = 0.020, .row = 0.0001}));
  const auto layers = static_cast<double>(Model().num_layers);
  EXPECT_NEAR(pass.read, 0.020 * layers, 0.02 * 0.020 * layers);
  EXPECT_NEAR(pass.row, 0.0001 * layers, 0.02 * 0.0001 * layers);
}

TEST(PassRowsTest, ReadingTakesATenthOfTheRowsTime) {
  EXPECT_EQ(ChoosePassRows({.read = 0.1, .row = 0.001}, kMostPassRows), 1024);  // 1,000
  EXPECT_EQ(ChoosePassRows({.read = 0.1, .row = 0.1}, kMostPassRows), kFewestPassRows);
  EXPECT_EQ(ChoosePassRows({.read = 1, .row = 0.001}, kMostPassRows), kMostPassRows);
  EXPECT_EQ(ChoosePassRows({.read = 1, .row = 0.001}, 1000), 960) << "memory allows no more";
  EXPECT_EQ(ChoosePassRows({.read = 1, .row = 0.001}, 10), kFewestPassRows);
  EXPECT_EQ(ChoosePassRows({.read = 1, .row = 0}, kMostPassRows), kMostPassRows);
  EXPECT_EQ(ChoosePassRows({.read = 0, .row = 0}, kMostPassRows), kFewestPassRows);
}

TEST(PassRowsTest, DisturbedMeasurementsGiveNoNegativeTimes) {
  LayerTimes slow_first;  // more rows took less
  slow_first.samples = {{.rows = 64, .dense = 2, .moe = 2}, {.rows = 256, .dense = 1, .moe = 1}};
  const PassTimes all_read = PassTimesOf(Model(), slow_first);
  EXPECT_GT(all_read.read, 0);
  EXPECT_NEAR(all_read.row, 0, 1e-9);
  LayerTimes slow_last;
  slow_last.samples = {{.rows = 64, .dense = 0.01, .moe = 0.01}, {.rows = 256, .dense = 9, .moe = 9}};
  const PassTimes no_read = PassTimesOf(Model(), slow_last);
  EXPECT_EQ(no_read.read, 0);
  EXPECT_GT(no_read.row, 0);
  LayerTimes one;
  one.samples = {{.rows = 8, .dense = 1, .moe = 1}};
  EXPECT_EQ(ChoosePassRows(PassTimesOf(Model(), one), kMostPassRows), kFewestPassRows);
}

TEST(PassRowsTest, MoreRowsThanWereMeasuredTakeWhatTheMachineWould) {
  const ReadingMachine machine{.read = 0.020, .row = 0.0001};
  const LayerTimes measured = Measured(Model(), machine);
  const LayerTimes more = WithRows(Model(), measured, 2048);
  ASSERT_EQ(more.samples.size(), measured.samples.size() + 1);
  const double expected = machine.read + 2048 * machine.row;
  EXPECT_NEAR(more.samples.back().moe, expected, 0.02 * expected);
  EXPECT_NEAR(more.samples.back().dense, expected, 0.02 * expected);
  EXPECT_EQ(WithRows(Model(), measured, 256).samples.size(), measured.samples.size());
}

TEST(PassRowsTest, BuffersStayWithinAGiB) {
  const int64_t rows = PassRowsWithin(Model(), /*threads=*/16);
  EXPECT_GE(rows, kFewestPassRows);
  EXPECT_LT(rows, kMostPassRows);
  EXPECT_LE(model::Engine::BufferBytes(Model(), rows, 16), kMostPassBytes);
  EXPECT_GT(model::Engine::BufferBytes(Model(), rows + 64, 16), kMostPassBytes);
}

}  // namespace
}  // namespace moestro::roofline
