#include "common/engine/sim/sim_decode.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/device/sim/sim_device.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::engine {
namespace {

constexpr int64_t kLayer = 2;  // with experts

// Nothing takes time but the bus.
device::HardwareSpec Machine() {
  return {.name = "bus",
          .gpu_memory_bytes = 1e9,
          .gpu_memory_bytes_per_second = 1e30,
          .gpu_processors = 1,
          .fp8_flops_per_second = 1e30,
          .bf16_flops_per_second = 1e30,
          .copy_bytes_per_second = 1e9,
          .copy_seconds = 1,
          .launch_seconds = 0};
}

// x, choices and a flag for each row go over the bus, and the thread knows of them half a trip later; no copy is made.
TEST(SimDecode, HandsOverBetweenKernelsAndHostMemory) {
  const weights::ModelSpec spec = SmallSpec();
  const roofline::ModelCount count = roofline::CountModel(spec, DType::kF8E4M3);
  const auto device = device::NewSimDevice(Machine());
  const auto stream = device->NewStream("lane").value();
  SimDecode decode(*device, spec, count);
  ASSERT_TRUE(decode.HandsOver(0, {}, 4));
  EXPECT_TRUE(decode.ReadSums(0, nullptr, 4));
  const std::vector<model::EngineRow> rows(3);
  model::CheckedBatch batch;
  batch.rows = rows;
  decode.Begin(0, 0, batch);
  ASSERT_TRUE(decode.Attend(0, kLayer, *stream).ok());
  EXPECT_TRUE(decode.IsHandedOver(0));
  const double row_bytes = static_cast<double>(2 * spec.hidden_size + 8 * spec.experts_per_token + 4);
  const double trip = device::kBusTripSeconds, written = 3 * row_bytes / 1e9 + trip;
  EXPECT_NEAR(device->Now(), written + trip / 2, 1e-12);
  // The device goes on when all but the flag has arrived. Later it reads the sums.
  const double now = device->Now();
  ASSERT_TRUE(decode.Combine(0, kLayer, *stream).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_NEAR(device->Now() - now, static_cast<double>(3 * 4 * spec.hidden_size) / 1e9 + trip, 1e-12);
}

}  // namespace
}  // namespace moestro::engine
