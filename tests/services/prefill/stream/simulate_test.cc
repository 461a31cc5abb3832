#include "services/prefill/stream/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/checkpoint/config.h"
#include "common/roofline/shapes.h"
#include "tests/services/prefill/stream/stream_fixture.h"

namespace moestro::prefill {
namespace {

// Balanced so that a few hundred tokens of the small model take about as long to compute as its weights to load.
device::HardwareSpec Machine() {
  return {.name = "small",
          .gpu_memory_bytes = 1e9,
          .gpu_memory_bytes_per_second = 1e9,
          .gpu_processors = 1,
          .fp8_flops_per_second = 1e9,
          .bf16_flops_per_second = 1e9,
          .copy_bytes_per_second = 1e6,
          .copy_seconds = 1e-6,
          .launch_seconds = 1e-6};
}

SimulatedPrefill Simulate(int64_t tokens, const MemoryLimits& limits = {.dense_bytes = 1 << 20}) {
  return SimulatePrefill(Machine(), SmallSpec(), DType::kF8E4M3, model::MlaForm::kUnabsorbed, tokens, limits).value();
}

TEST(Simulate, IsTheSameEveryTime) {
  const StreamCounters expected = Simulate(100).report.counters;
  for (int i = 0; i < 5; ++i) {
    const StreamCounters counters = Simulate(100).report.counters;
    EXPECT_EQ(counters.wall_seconds, expected.wall_seconds);
    EXPECT_EQ(counters.stall_seconds, expected.stall_seconds);
    EXPECT_EQ(counters.slot_wait_seconds, expected.slot_wait_seconds);
  }
}

TEST(Simulate, TheLongerOfLoadingAndComputingIsWhatItTakes) {
  for (const int64_t tokens : {1, 50, 200, 800, 3000}) {
    const StreamCounters c = Simulate(tokens).report.counters;
    const double longer = std::max(c.load_seconds, c.compute_seconds);
    EXPECT_GE(c.wall_seconds, longer) << tokens;
    EXPECT_LE(c.wall_seconds, 1.25 * longer) << tokens;  // two layers of experts: little to overlap at both ends
  }
  EXPECT_GT(Simulate(10).report.counters.load_seconds, Simulate(10).report.counters.compute_seconds);
  EXPECT_LT(Simulate(3000).report.counters.load_seconds, Simulate(3000).report.counters.compute_seconds);
}

TEST(Simulate, ALongerRingDoesNotTakeLonger) {
  const auto wall = [](int64_t slots) {
    return Simulate(200, {.dense_bytes = 1 << 20, .ring_slots = slots}).report.counters.wall_seconds;
  };
  for (const int64_t slots : {3, 4, 8}) EXPECT_LE(wall(slots), 1.02 * wall(2)) << slots;
}

// A launch of its own for every expert leaves processors idle more often.
TEST(Simulate, ExpertsByThemselvesTakeLonger) {
  const auto compute = [](int64_t together) {
    return Simulate(200, {.dense_bytes = 1 << 20, .ring_slots = 8, .max_experts_together = together})
        .report.counters.compute_seconds;
  };
  EXPECT_GT(compute(1), compute(2));
  EXPECT_EQ(compute(2), compute(16));  // a quarter of the ring
}

TEST(Simulate, PassesStreamEverythingAgain) {
  const int64_t once = Simulate(1000).report.counters.streamed_bytes;
  const weights::ModelSpec spec = SmallSpec();
  const model::ModelWeights weights = roofline::ShapesOnly(spec, DType::kF8E4M3);
  const engine::SimPrefill compute(spec, weights);
  const int64_t slot = SlotBytes(engine::ListModules(spec, weights, model::MlaForm::kUnabsorbed, 1 << 18));
  const SimulatedPrefill twice = Simulate(1000, {.device_bytes = (1 << 20) + 8 * slot + compute.ActivationBytes(500),
                                                 .dense_bytes = 1 << 20,
                                                 .ring_slots = 8,
                                                 .min_pass_rows = 100});
  EXPECT_EQ(twice.plan.passes, 2);
  EXPECT_GT(twice.report.counters.streamed_bytes, once * 18 / 10);  // the head is streamed once
}

// Rows go through experts in the tiles of a GPU: all at once where the memory suffices, otherwise in three.
TEST(Simulate, SpareMemoryMakesTilesLonger) {
  constexpr int64_t kTokens = 10000;
  const weights::ModelSpec spec = SmallSpec();
  const model::ModelWeights weights = roofline::ShapesOnly(spec, DType::kF8E4M3);
  const engine::SimPrefill compute(spec, weights);
  const int64_t slot = SlotBytes(engine::ListModules(spec, weights, model::MlaForm::kUnabsorbed, 1 << 18));
  const auto compute_seconds = [&](int64_t spare_bytes, bool cuts_rows) {
    const MemoryLimits limits{.device_bytes = (1 << 20) + 8 * slot + compute.ActivationBytes(kTokens) + spare_bytes,
                              .dense_bytes = 1 << 20,
                              .ring_slots = 8};
    return SimulatePrefill(Machine(), spec, DType::kF8E4M3, model::MlaForm::kUnabsorbed, kTokens, limits,
                           {.cuts_rows = cuts_rows})
        .value()
        .report.counters.compute_seconds;
  };
  EXPECT_GT(compute_seconds(0, true), compute_seconds(0, false));
  EXPECT_LT(compute_seconds(200 << 20, true), compute_seconds(0, true));
  EXPECT_EQ(compute_seconds(200 << 20, false), compute_seconds(0, false));
}

using SimulatedShapesTest = StreamTest;

// What is simulated is what would be streamed: the same modules of the same sizes as in a segment.
TEST_F(SimulatedShapesTest, ModulesHaveTheSizesOfASegmentsModules) {
  const model::ModelWeights shapes = roofline::ShapesOnly(spec(), DType::kF8E4M3);
  for (const model::MlaForm form : {model::MlaForm::kAbsorbed, model::MlaForm::kUnabsorbed}) {
    const std::vector<engine::Module> simulated = engine::ListModules(spec(), shapes, form, 1 << 18);
    const std::vector<engine::Module> real = engine::ListModules(spec(), weights_, form, 1 << 18);
    ASSERT_EQ(simulated.size(), real.size());
    for (size_t i = 0; i < real.size(); ++i) {
      EXPECT_EQ(simulated[i].kind, real[i].kind);
      EXPECT_NEAR(static_cast<double>(simulated[i].image.bytes), static_cast<double>(real[i].image.bytes), 3 * 4096)
          << i;
      if (real[i].kind == engine::ModuleKind::kExpert) {
        EXPECT_EQ(simulated[i].image.ranges.size(), real[i].image.ranges.size()) << i;
      }
    }
  }
}

// Between the matrices of published sizes lie more exceptions and padding than between those of the small model.
TEST(SimulatedShapes, ExpertsOfPublishedSizesAreOneCopyEach) {
  weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  spec.num_layers = spec.first_dense_layers + 1;
  const model::ModelWeights shapes = roofline::ShapesOnly(spec, DType::kF8E4M3);
  for (const model::MlaForm form : {model::MlaForm::kAbsorbed, model::MlaForm::kUnabsorbed}) {
    for (const engine::Module& module : engine::ListModules(spec, shapes, form, 1 << 18)) {
      if (module.kind == engine::ModuleKind::kExpert) {
        EXPECT_EQ(module.image.ranges.size(), 1u);
      }
      if (module.kind == engine::ModuleKind::kAttention) {
        EXPECT_LE(module.image.ranges.size(), 2u);  // without the form's other half of kv_b
      }
    }
  }
}

}  // namespace
}  // namespace moestro::prefill
