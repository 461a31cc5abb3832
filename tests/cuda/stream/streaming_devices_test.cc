// The prefill role with --device cuda:N or --devices 0,1, on the model of GPUs: prompts stream through them, or are
// computed without them.
#include "services/prefill/streaming_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "services/prefill/prefill_runner.h"
#include "services/prefill/stream/cuda/activations.h"
#include "services/prefill/stream/modules.h"
#include "tests/cuda/emulation/runtime.h"
#include "tests/support/engine_node.h"
#include "tests/support/log_capture.h"

namespace moestro {
namespace {

constexpr int64_t kDenseBytes = 1 << 20;
constexpr int kTokens = 12;

ModelSpec Spec() {
  ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 2;
  return spec;
}

class CudaStreamingDevicesTest : public testing::Test {
 protected:
  CudaStreamingDevicesTest() { emulation::ResetGpu(); }
  ~CudaStreamingDevicesTest() override { emulation::ResetGpu(); }

  static std::unique_ptr<StreamingDevices> Device(EngineNode& node, int64_t memory_bytes = int64_t{1} << 30) {
    PrefillConfig config;
    config.stream.device = "cuda:0";
    return Open(node, config, memory_bytes);
  }
  static std::unique_ptr<StreamingDevices> Devices(EngineNode& node, const std::string& list) {
    PrefillConfig config;
    config.stream.devices = list;
    config.stream.device_timeout_seconds = 600;  // the model is slow
    return Open(node, config, int64_t{1} << 30);
  }
  static std::unique_ptr<StreamingDevices> Open(EngineNode& node, PrefillConfig config, int64_t memory_bytes) {
    config.stream.memory_bytes = memory_bytes;
    config.stream.dense_bytes = kDenseBytes;
    config.stream.from_tokens = 2;
    return StreamingDevices::Create(config, node.shared_segment(), *AvailableKernels().back(), node.workers()).value();
  }

  struct Result {
    SampledToken token;
    bool streamed = false;
    int64_t devices = 0;     // that it was streamed through
    int64_t ring_slots = 0;  // 0: the run could not begin
  };
  Result Run(StreamingDevices* device) {
    PrefillRunner runner(node_.engine(), node_.workers(), {.name = "unabsorbed"},
                         {.prefill = device == nullptr ? nullptr : &device->prefill(),
                          .from_tokens = 2,
                          .trace_file = "",
                          .use_pool = [device](const auto& pool) {
                            if (device != nullptr) device->UsePool(pool);
                          }});
    PrefillJob job;
    for (int i = 0; i < kTokens; ++i) job.token_ids.push_back((i + 3) * 7 % 50);
    job.prompt_tokens = kTokens;
    const KvLease lease = node_.pool().Reserve({.capacity = kTokens}).value();
    const auto writer = node_.Writer(lease);
    Result result;
    const PrefillEvents events{.on_progress = {}, .on_streamed = [&](const StreamCounters& counters) {
                                 result.streamed = true;
                                 result.devices = counters.devices;
                                 result.ring_slots = counters.ring_slots;
                               }};
    const auto token = runner.Run(
        job, *writer, [] { return absl::OkStatus(); }, events);
    EXPECT_TRUE(token.ok()) << token.status();
    if (token.ok()) result.token = **token;
    EXPECT_EQ(node_.pool().ValidTokens(lease), kTokens);
    return result;
  }

  EngineNode node_{/*max_rows=*/16, /*nan_token=*/-1, /*page_count=*/16, {.threads = 2}, Spec()};
};

TEST_F(CudaStreamingDevicesTest, TheSameTokenAsOnTheCpu) {
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  const Result streamed = Run(device.get()), expected = Run(nullptr);
  EXPECT_TRUE(streamed.streamed);
  EXPECT_FALSE(expected.streamed);
  EXPECT_EQ(streamed.token.id, expected.token.id);
}

TEST_F(CudaStreamingDevicesTest, WeightsAndThePoolArePinned) {
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  const Result first = Run(device.get());  // tells which pool
  const SegmentHeader& weights = node_.segment().header();
  const std::span<const uint8_t> pool = node_.mapping()->PagesMemory();
  emulation::AwaitRegistered(reinterpret_cast<const uint8_t*>(&weights) + weights.total_bytes - 1);
  emulation::AwaitRegistered(&pool.back());
  const int64_t pageable = emulation::Gpu().pageable_copies;
  EXPECT_EQ(Run(device.get()).token.id, first.token.id);
  EXPECT_EQ(emulation::Gpu().pageable_copies - pageable, 5) << "angles, NaN flags to and fro, logits: all small";
}

TEST_F(CudaStreamingDevicesTest, TheSameTokenWhereNothingCanBePinned) {
  const Result expected = Run(nullptr);
  emulation::Gpu().registrable_bytes = 0;
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  for (int i = 0; i < 2; ++i) {
    const Result result = Run(device.get());
    EXPECT_TRUE(result.streamed);
    EXPECT_EQ(result.token.id, expected.token.id);
  }
  EXPECT_EQ(emulation::Gpu().registered_bytes, 0);
}

// Decode, say, has come to the same GPU.
TEST_F(CudaStreamingDevicesTest, AShorterRingWhereOthersHaveTakenMemorySince) {
  const auto device = Device(node_, /*memory_bytes=*/0);
  ASSERT_NE(device, nullptr);
  const Result before = Run(device.get());
  ASSERT_EQ(before.ring_slots, Spec().num_experts);
  const ModelWeights weights = BindWeights(node_.segment()).value();
  const int64_t slot = SlotBytes(ListModules(Spec(), weights, MlaForm::kUnabsorbed, kDenseBytes));
  const int64_t others = kDenseBytes + CudaActivations::Bytes(Spec(), CudaSizes::OfPass(kTokens));
  emulation::Gpu().memory_bytes = (int64_t{512} << 20) + others + 3 * slot;
  const Result after = Run(device.get());
  EXPECT_EQ(after.ring_slots, 3);
  EXPECT_EQ(after.token.id, before.token.id);
}

// A decode role that was started again has another pool, and the old one's memory must go.
TEST_F(CudaStreamingDevicesTest, ANewPoolTakesTheOldOnesPlace) {
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  std::shared_ptr<const KvPoolMapping> old = KvPoolMapping::Open(node_.pool().name(), kTestFingerprint).value();
  device->UsePool(old);
  const void* const page = old->pages_base();
  emulation::AwaitRegistered(page);
  const std::weak_ptr<const KvPoolMapping> watched = std::exchange(old, nullptr);
  EXPECT_FALSE(watched.expired());
  device->UsePool(node_.mapping());
  EXPECT_TRUE(watched.expired());
  emulation::AwaitRegistered(node_.mapping()->pages_base());
}

TEST_F(CudaStreamingDevicesTest, TwoShareAPrompt) {
  emulation::Gpu().devices = 2;
  const auto devices = Devices(node_, "0,1");
  ASSERT_NE(devices, nullptr);
  const Result streamed = Run(devices.get()), expected = Run(nullptr);
  EXPECT_TRUE(streamed.streamed);
  EXPECT_EQ(streamed.devices, 2);
  EXPECT_EQ(streamed.token.id, expected.token.id);
}

TEST_F(CudaStreamingDevicesTest, NotUsedWhereOneOfThemIsMissing) {
  const LogCapture log;
  EXPECT_EQ(Devices(node_, "0,1"), nullptr);
  EXPECT_THAT(log.lines(), testing::ElementsAre(testing::AllOf(
                               testing::HasSubstr("--devices 0,1 is not used, all prompts are computed where"),
                               testing::HasSubstr("cuda:1: there are 1 GPUs, counted from 0; see nvidia-smi -L"))));
}

TEST_F(CudaStreamingDevicesTest, AGpuThatFailsCostsTimeOnly) {
  const Result expected = Run(nullptr);
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  emulation::Gpu().failing_launch = emulation::Gpu().launches + 20;
  for (int i = 0; i < 2; ++i) {  // it stays lost
    const Result result = Run(device.get());
    EXPECT_EQ(result.token.id, expected.token.id);
    EXPECT_EQ(result.token.logprob, expected.token.logprob);
  }
}

TEST_F(CudaStreamingDevicesTest, NotUsedWhereItCannotBe) {
  emulation::Gpu().devices = 0;
  EXPECT_EQ(Device(node_), nullptr);
  emulation::Gpu().devices = 1;
  EXPECT_EQ(Device(node_, /*memory_bytes=*/1 << 20), nullptr);
  emulation::Gpu().failing_launch = emulation::Gpu().launches;  // as if the build had no kernels for it
  EXPECT_EQ(Device(node_), nullptr);
}

TEST_F(CudaStreamingDevicesTest, NotUsedForHeadsThatTheKernelsDoNotHave) {
  EngineNode other;
  EXPECT_EQ(Device(other), nullptr);
}

}  // namespace
}  // namespace moestro
