#include "loadtest/bench/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "loadtest/bench/benchmark.h"

namespace moestro::bench {
namespace {

using ::testing::ElementsAre;

// A clock that only the works move.
class FakeMachine {
 public:
  RoundTimer Timer(RoundTimer::Options options) {
    return RoundTimer(options, [this] { return now_; });
  }
  // One unit: `amount` in `seconds`, recorded under `name`.
  Work Unit(char name, double amount, double seconds) {
    return {.run = [=, this] {
      now_ += seconds * slowdown_;
      order_ += name;
      return amount;
    }};
  }
  void SlowDown(double factor) { slowdown_ = factor; }
  const std::string& order() const { return order_; }
  void ForgetOrder() { order_.clear(); }

 private:
  double now_ = 100;
  double slowdown_ = 1;
  std::string order_;
};

TEST(Summarize, TakesTheMiddleValue) {
  const Summary summary = Summarize({5, 1, 9});
  EXPECT_EQ(summary.median, 5);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 9);
}

TEST(Summarize, TakesTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(Summarize({4, 1, 2, 100}).median, 3);
  EXPECT_EQ(Summarize({7}).median, 7);
}

TEST(RoundTimer, EveryWorkRunsInEveryRoundAndTheFirstOneChanges) {
  FakeMachine machine;
  const Work works[] = {machine.Unit('a', 1, 1), machine.Unit('b', 1, 1), machine.Unit('c', 1, 1)};
  const auto series = machine.Timer({.rounds = 4, .min_sample_seconds = 0.5}).Measure(works);
  // One unit each is long enough: that takes one run each to see.
  EXPECT_EQ(machine.order(),
            "abc"
            "abc"
            "bca"
            "cab"
            "abc");
  ASSERT_EQ(series.size(), 3u);
  for (const Series& one : series) EXPECT_EQ(one.size(), 4u);
}

TEST(RoundTimer, RepeatsShortUnitsUntilASampleIsLongEnough) {
  FakeMachine machine;
  const Work works[] = {machine.Unit('a', 8, 0.001)};
  const auto series = machine.Timer({.rounds = 2, .min_sample_seconds = 0.1}).Measure(works);
  for (const Sample& sample : series[0]) {
    EXPECT_GE(sample.seconds, 0.1 - 1e-9);
    EXPECT_LT(sample.seconds, 0.2);
    EXPECT_EQ(sample.amount, 8.0 * static_cast<double>(sample.units));
  }
  EXPECT_NEAR(AmountPerSecond(series[0]).median, 8000, 1e-6);
  EXPECT_NEAR(SecondsPerUnit(series[0]).median, 0.001, 1e-12);
}

TEST(RoundTimer, PreparesEachSampleOutsideOfItsTime) {
  FakeMachine machine;
  double idle = 0;
  int prepared = 0;
  RoundTimer timer({.rounds = 3, .min_sample_seconds = 0.5}, [&] { return idle; });
  const Work works[] = {{.run =
                             [&] {
                               idle += 1;
                               return 1.0;
                             },
                         .prepare =
                             [&] {
                               idle += 50;
                               ++prepared;
                             }}};
  const auto series = timer.Measure(works);
  EXPECT_EQ(prepared, 1 + 3);
  for (const Sample& sample : series[0]) EXPECT_EQ(sample.seconds, 1);
}

TEST(RoundTimer, AClockThatStandsStillDoesNotHang) {
  RoundTimer timer({.rounds = 1, .min_sample_seconds = 1}, [] { return 0.0; });
  int64_t runs = 0;
  const Work works[] = {{.run = [&] { return static_cast<double>(++runs); }}};
  EXPECT_EQ(timer.Measure(works)[0].size(), 1u);
}

TEST(Ratios, AreTakenRoundByRound) {
  // The machine halves its speed in the second round: no ratio notices.
  const Series subject = {{.amount = 10, .seconds = 1, .units = 1}, {.amount = 10, .seconds = 2, .units = 1}};
  const Series reference = {{.amount = 20, .seconds = 1, .units = 1}, {.amount = 20, .seconds = 2, .units = 1}};
  const Summary ratio = RateRatio(subject, reference);
  EXPECT_EQ(ratio.min, 0.5);
  EXPECT_EQ(ratio.median, 0.5);
  EXPECT_EQ(ratio.max, 0.5);
}

TEST(Ratios, SpeedCountsUnitsWhateverTheirAmount) {
  const Series subject = {{.amount = 1000, .seconds = 1, .units = 10}};
  const Series reference = {{.amount = 4000, .seconds = 2, .units = 10}};
  EXPECT_EQ(SpeedRatio(subject, reference).median, 2);
  EXPECT_EQ(RateRatio(subject, reference).median, 0.5);
}

// 8 bytes and 12 operations a unit. Reading bounds the first round, multiplying the second.
TEST(Ratios, ARooflineIsTheSlowerOfReadingAndMultiplying) {
  const Series subject = {{.amount = 24, .seconds = 10, .units = 2}, {.amount = 24, .seconds = 10, .units = 2}};
  const Series read = {{.amount = 2, .seconds = 1, .units = 1}, {.amount = 16, .seconds = 2, .units = 1}};
  const Series dot = {{.amount = 12, .seconds = 2, .units = 1}, {.amount = 12, .seconds = 3, .units = 1}};
  Row row;
  CompareRoofline(subject, /*bytes_a_unit=*/8, read, dot, 0.7, &row);
  EXPECT_DOUBLE_EQ(row.ratio.max, 4.0 / 5);
  EXPECT_DOUBLE_EQ(row.ratio.min, 3.0 / 5);
  EXPECT_DOUBLE_EQ(row.reference->rate.min, 12.0 / 4 * 1e-9);
  EXPECT_EQ(row.reference->name, kRoofline);
}

TEST(SteadySeconds, Advances) {
  const double begin = SteadySeconds();
  EXPECT_GE(SteadySeconds(), begin);
}

}  // namespace
}  // namespace moestro::bench
