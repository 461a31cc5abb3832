#include "services/decode/chunk_sizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace moestro::decode {
namespace {

constexpr double kBound = 0.050;
constexpr int64_t kMaxRows = 256;

// A machine: 10 ms to read what every step reads, 1 ms for each decoding sequence, and for the prompt rows the experts
// that they reach first (up to `experts_seconds`), then 0.1 ms of arithmetic each.
struct SimulatedMachine {
  double base = 0.010;
  double experts_seconds = 0.008;
  double StepSeconds(int64_t decode_rows, int64_t prompt_rows) const {
    const double experts = 1 - std::pow(1 - 8.0 / 256, static_cast<double>(prompt_rows));
    return base + 0.001 * static_cast<double>(decode_rows) + experts_seconds * experts +
           0.0001 * static_cast<double>(prompt_rows);
  }
};

// Runs mixed steps; gives the rows that the last of them had. `seen` gets each step's seconds.
int64_t RunSteps(
    ChunkSizer& sizer, const SimulatedMachine& machine, int64_t decode_rows, int steps,
    const std::function<void(double)>& seen = [](double) {}) {
  int64_t rows = 0;
  for (int i = 0; i < steps; ++i) {
    rows = sizer.Choose(decode_rows);
    const double seconds = machine.StepSeconds(decode_rows, rows);
    seen(seconds);
    sizer.Note(decode_rows, rows, seconds);
  }
  return rows;
}

TEST(ChunkSizerTest, StartsSmallAndTakesTheMaximumWhenNobodyDecodes) {
  const ChunkSizer sizer({kBound, kMaxRows});
  EXPECT_EQ(sizer.Choose(0), kMaxRows);
  EXPECT_EQ(sizer.Choose(1), ChunkSizer::kMinRows);
}

TEST(ChunkSizerTest, TakesTheMaximumWithoutABound) {
  ChunkSizer sizer({std::numeric_limits<double>::infinity(), kMaxRows});
  EXPECT_EQ(sizer.Choose(200), kMaxRows);
  sizer.Note(200, kMaxRows, 100);
  EXPECT_EQ(sizer.Choose(200), kMaxRows);
}

TEST(ChunkSizerTest, WhereStepsAreLongTheBoundFollowsThem) {
  const SimulatedMachine machine{.base = 0.100};
  ChunkSizer fixed({kBound, kMaxRows}), follows({kBound, kMaxRows, /*bound_over_base=*/1.5});
  for (ChunkSizer* sizer : {&fixed, &follows}) {
    for (int i = 0; i < 3; ++i) sizer->Note(4, 0, machine.StepSeconds(4, 0));
  }
  EXPECT_EQ(RunSteps(fixed, machine, 4, 8), ChunkSizer::kMinRows);
  const double most = 1.5 * machine.StepSeconds(4, 0);
  const int64_t rows = RunSteps(follows, machine, 4, 8, [&](double seconds) { EXPECT_LE(seconds, most); });
  EXPECT_GT(rows, 200);
  ChunkSizer fast({kBound, kMaxRows, 1.5});
  for (int i = 0; i < 3; ++i) fast.Note(4, 0, 0.014);
  EXPECT_LE(SimulatedMachine().StepSeconds(4, RunSteps(fast, {}, 4, 8)), kBound) << "50 ms are allowed in any case";
}

TEST(ChunkSizerTest, ClimbsToTheBoundAndNeverExceedsIt) {
  ChunkSizer sizer({kBound, kMaxRows});
  const SimulatedMachine machine;
  for (int i = 0; i < 3; ++i) sizer.Note(4, 0, machine.StepSeconds(4, 0));
  const int64_t rows = RunSteps(sizer, machine, 4, 8, [](double seconds) { EXPECT_LE(seconds, kBound); });
  EXPECT_GT(rows, 180) << "4 + 14 ms are fixed, the rest is room for about 230 rows";
}

TEST(ChunkSizerTest, LearnsWithoutEverSeeingAStepWithoutPrompts) {
  ChunkSizer sizer({kBound, kMaxRows});
  const int64_t rows = RunSteps(sizer, {}, 6, 20, [](double seconds) { EXPECT_LE(seconds, kBound); });
  EXPECT_GT(rows, 128);
}

TEST(ChunkSizerTest, KeepsGoingWhenDecodingAloneExceedsTheBound) {
  ChunkSizer sizer({kBound, kMaxRows});
  const SimulatedMachine slow{.base = 0.2};
  for (int i = 0; i < 3; ++i) sizer.Note(1, 0, slow.StepSeconds(1, 0));
  EXPECT_EQ(RunSteps(sizer, slow, 1, 5), ChunkSizer::kMinRows);
}

TEST(ChunkSizerTest, SmallMaximumIsKept) {
  ChunkSizer sizer({kBound, 5});
  EXPECT_EQ(RunSteps(sizer, {}, 1, 5), 5);
  ChunkSizer one({kBound, 1});
  EXPECT_EQ(RunSteps(one, {}, 1, 5), 1);
}

TEST(ChunkSizerTest, OneSlowStepChangesLittle) {
  ChunkSizer sizer({kBound, kMaxRows});
  const SimulatedMachine machine;
  sizer.Note(2, 0, machine.StepSeconds(2, 0));
  const int64_t before = RunSteps(sizer, machine, 2, 12);
  sizer.Note(2, before, 3.0);
  sizer.Note(2, 0, 3.0);
  sizer.Note(2, 0, machine.StepSeconds(2, 0));
  sizer.Note(2, 0, machine.StepSeconds(2, 0));
  EXPECT_GT(sizer.Choose(2), before / 2);
}

TEST(ChunkSizerTest, ShrinksWhenRowsBecomeDearer) {
  ChunkSizer sizer({kBound, kMaxRows});
  RunSteps(sizer, {}, 2, 12);
  const SimulatedMachine dearer{.experts_seconds = 0.038};
  int late = 0;
  const auto count = [&](double seconds) { late += seconds > kBound ? 1 : 0; };
  RunSteps(sizer, dearer, 2, 20, count);
  EXPECT_LE(late, 10) << "two for each of the cuts that it takes";
  late = 0;
  RunSteps(sizer, dearer, 2, 40, count);
  EXPECT_EQ(late, 0);
}

TEST(ChunkSizerTest, RecoversAfterABusySpell) {
  ChunkSizer sizer({kBound, kMaxRows});
  const int64_t before = RunSteps(sizer, {}, 2, 12);
  RunSteps(sizer, {.base = 0.045}, 2, 20);
  EXPECT_GE(RunSteps(sizer, {}, 2, 200), before * 9 / 10);
}

}  // namespace
}  // namespace moestro::decode
