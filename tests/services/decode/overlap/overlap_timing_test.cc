// When what happens: on engines whose speeds are given, in virtual time.
#include <gtest/gtest.h>

#include "services/decode/overlap/cost_model.h"
#include "services/decode/overlap/measure.h"
#include "tests/services/decode/overlap/overlap_fixture.h"

namespace moestro::decode {
namespace {

// So many layers, all with experts.
weights::ModelSpec Layers(int64_t layers) {
  weights::ModelSpec spec = SmallSpec();
  spec.num_layers = layers;
  spec.first_dense_layers = 0;
  return spec;
}

constexpr EngineSpeeds kPaper = {.attend = 350e-6, .experts = 450e-6};  // section 3.3.1, a layer
constexpr int64_t kPaperLayers = 61;
constexpr double kTolerance = 1e-6;  // copies of a few rows

size_t Halves(const model::CheckedBatch& batch) { return batch.runs.size() / 2; }

TEST(OverlapTiming, OneMicroBatchTakesTheSumOfItsParts) {
  TimedEngines engines(Layers(kPaperLayers), kPaper, OneMicroBatch);
  EXPECT_NEAR(engines.Step(1), 61 * 800e-6, kTolerance);
  EXPECT_NEAR(engines.Step(2), 61 * 800e-6, kTolerance) << "and so does the next one";
}

TEST(OverlapTiming, TwoMicroBatchesTakeAsLongAsTheSlowerEngine) {
  TimedEngines engines(Layers(kPaperLayers), kPaper, Halves);
  const double step = engines.Step(2);
  EXPECT_NEAR(step, 350e-6 + 61 * 2 * 450e-6, kTolerance) << "the CPU waits for the first attention only";
  EXPECT_GE(2 / step, 1.5 / (61 * 800e-6)) << "throughput";
  EXPECT_EQ(engines.forward().overlapped_steps(), 1);
}

TEST(OverlapTiming, IsTheSameEveryTime) {
  TimedEngines engines(Layers(7), {.attend = 300e-6, .shared = 50e-6, .experts = 310e-6}, Halves);
  const double first = engines.Step(2);
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(engines.Step(2), first, 1e-12);
}

TEST(OverlapTiming, TheCostModelSaysWhatTheStepTakes) {
  constexpr int64_t kLayers = 9;
  for (const double attend : {50e-6, 350e-6, 900e-6}) {
    for (const double shared : {0.0, 60e-6, 600e-6}) {
      for (const double experts : {40e-6, 450e-6, 1200e-6}) {
        const EngineSpeeds speeds{attend, shared, experts};
        const LayerTimes layer{.attend = attend, .shared = shared, .experts = experts};
        const LayerTimes lanes[] = {layer, layer};
        EXPECT_NEAR(TimedEngines(Layers(kLayers), speeds, OneMicroBatch).Step(2),
                    StepSeconds(std::span(lanes, 1), kLayers), kTolerance)
            << attend << " " << shared << " " << experts;
        EXPECT_NEAR(TimedEngines(Layers(kLayers), speeds, Halves).Step(2), StepSeconds(lanes, kLayers), kTolerance)
            << attend << " " << shared << " " << experts;
      }
    }
  }
}

TEST(OverlapTiming, MeasuresTheEnginesSpeeds) {
  TimedEngines engines(Layers(3), {.attend = 300e-6, .shared = 50e-6, .experts = 410e-6}, OneMicroBatch);
  const CostModel costs = MeasureCosts(engines.forward(), /*most_rows=*/6).value();
  for (const int64_t rows : {1, 3, 6}) {
    EXPECT_NEAR(costs.At(rows).attend, 300e-6, 1e-9) << rows;
    EXPECT_NEAR(costs.At(rows).shared, 50e-6, 1e-9) << rows;
    EXPECT_NEAR(costs.At(rows).experts, 410e-6, 1e-9) << rows;
  }
  EXPECT_NEAR(costs.OneBatch(2), engines.Step(2), kTolerance);
}

TEST(CostModel, AThreadThatSpinsHearsAtOnceWhereItsBatchIsAlone) {
  const std::vector<CostModel::Point> points = {{1, {.attend = 10, .experts = 20, .sync = 3}}};
  EXPECT_DOUBLE_EQ(CostModel(points, 2).OneBatch(1), 2 * 33);
  EXPECT_DOUBLE_EQ(CostModel(points, 2, /*spins=*/true).OneBatch(1), 2 * 30);
  EXPECT_DOUBLE_EQ(CostModel(points, 2, /*spins=*/true).TwoBatches(1, 1), CostModel(points, 2).TwoBatches(1, 1));
}

TEST(CostModel, IsProportionalBetweenAndBehindItsPoints) {
  const CostModel costs({{1, {.experts = 10}}, {4, {.experts = 40}}, {8, {.experts = 60}}}, 1);
  EXPECT_DOUBLE_EQ(costs.At(1).experts, 10);
  EXPECT_DOUBLE_EQ(costs.At(2).experts, 20);
  EXPECT_DOUBLE_EQ(costs.At(6).experts, 50);
  EXPECT_DOUBLE_EQ(costs.At(16).experts, 120);
  EXPECT_DOUBLE_EQ(costs.OneBatch(8), 60);
  EXPECT_DOUBLE_EQ(costs.TwoBatches(4, 4), 80) << "experts that share no weights: nothing gained";
}

TEST(CostModel, GivesTheSchedulerWhatTheDeviceComputesBesideExperts) {
  const CostModel costs({{1, {.attend = 3, .shared = 10, .transfer = 2}}, {4, {.shared = 16}}, {6, {.shared = 18}}}, 1);
  experts::ExpertCosts of_experts;
  costs.AddTo(of_experts);
  EXPECT_DOUBLE_EQ(of_experts.between, 5);
  EXPECT_DOUBLE_EQ(of_experts.shared.At(1), 10);
  EXPECT_DOUBLE_EQ(of_experts.shared.At(2), 12);
  EXPECT_DOUBLE_EQ(of_experts.shared.At(4), 16);
}

}  // namespace
}  // namespace moestro::decode
