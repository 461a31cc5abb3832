#include "services/prefill/stream/measure.h"

#include <gtest/gtest.h>

#include "common/device/sim/sim_device.h"
#include "common/engine/sim/sim_prefill.h"
#include "common/roofline/shapes.h"
#include "services/prefill/stream/simulate.h"
#include "tests/services/prefill/stream/stream_fixture.h"

namespace moestro::prefill {
namespace {

using model::MlaForm;

class MeasureStreamTest : public StreamTest {};

TEST_F(MeasureStreamTest, StreamsALayerOrTwoAndLeavesNothingBehind) {
  engine::HostPrefill compute(spec(), weights_, TestKernels(), pool_, 64);
  StreamPrefill prefill(device_, spec(), weights_, compute, {.dense_bytes = 1 << 20});
  const auto times = MeasureStream(prefill, spec(), {.rows = {8, 64}, .before = 128, .form = MlaForm::kAbsorbed});
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->samples.size(), 2u);
  EXPECT_EQ(times->samples[1].rows, 64);
  for (const auto& sample : times->samples) EXPECT_GT(sample.moe, 0);
  EXPECT_GT(times->moe_load, times->expert_load);
  EXPECT_GT(times->expert_load, 0);
  EXPECT_GT(times->head, 0);
  EXPECT_GT(times->link_seconds, 0);
  EXPECT_EQ(device_.memory_used(), 0);
  ExpectSameBits(100, {.limits = {.device_bytes = kDeviceBytes, .dense_bytes = 1 << 20}});
}

TEST_F(MeasureStreamTest, AFailureIsReturned) {
  engine::HostPrefill compute(spec(), weights_, TestKernels(), pool_, 64);
  StreamPrefill prefill(device_, spec(), weights_, compute, {.device_bytes = 1, .dense_bytes = 1});
  EXPECT_EQ(MeasureStream(prefill, spec(), {.rows = {8}}).status().code(), absl::StatusCode::kResourceExhausted);
}

// Half of the prompt's time is copies, or much more, or nearly nothing.
TEST(MeasureStream, TellsWhatSimulatedPromptsTake) {
  const device::HardwareSpec machine = {.name = "small",
                                        .gpu_memory_bytes = 1e9,
                                        .gpu_memory_bytes_per_second = 1e9,
                                        .gpu_processors = 1,
                                        .fp8_flops_per_second = 1e9,
                                        .bf16_flops_per_second = 1e9,
                                        .copy_bytes_per_second = 1e6,
                                        .copy_seconds = 1e-6,
                                        .launch_seconds = 1e-6};
  weights::ModelSpec spec = SmallSpec();
  spec.num_layers = 12;
  const model::ModelWeights weights = roofline::ShapesOnly(spec, DType::kF8E4M3);
  const MemoryLimits limits{.dense_bytes = 1 << 20};
  const auto device = device::NewSimDevice(machine);
  engine::SimPrefill compute(spec, weights);
  StreamPrefill prefill(*device, spec, weights, compute, limits);
  const auto times = MeasureStream(prefill, spec, {.rows = {16, 128}, .before = 256, .budget_seconds = 1e9}).value();
  const roofline::PromptForecast forecast(spec, times);
  for (const int64_t tokens : {16, 100, 400, 1600, 6400}) {
    const double simulated = SimulatePrefill(machine, spec, DType::kF8E4M3, MlaForm::kUnabsorbed, tokens, limits)
                                 .value()
                                 .report.counters.wall_seconds;
    EXPECT_NEAR(forecast.Streamed(MlaForm::kUnabsorbed, {}, tokens).seconds / simulated, 1, 0.15) << tokens;
  }
}

}  // namespace
}  // namespace moestro::prefill
