// The prefill role with --device cuda:N or --devices 0,1, on the model of GPUs: prompts are streamed through them, or
// computed without them.
#include "services/prefill/prefill_backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/base/steady_seconds.h"
#include "common/engine/cuda/activations.h"
#include "common/engine/weight_image.h"
#include "common/platform/process_memory.h"
#include "services/prefill/prefill_runner.h"
#include "tests/cuda/emulation/runtime.h"
#include "tests/cuda/near.h"
#include "tests/support/engine_node.h"
#include "tests/support/log_capture.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {
namespace {

constexpr int64_t kDenseBytes = 1 << 20;
constexpr int kTokens = 12;

weights::ModelSpec Spec() {
  weights::ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 2;
  return spec;
}

class CudaStreamingDevicesTest : public ::testing::Test {
 protected:
  CudaStreamingDevicesTest() { emulation::ResetGpu(); }
  ~CudaStreamingDevicesTest() override { emulation::ResetGpu(); }

  // As the engine on the CPU computes.
  static PrefillConfig Exact() {
    PrefillConfig config;
    config.activations = PrefillActivations::kBf16;
    return config;
  }
  static std::unique_ptr<PrefillBackends> Device(EngineNode& node, int64_t memory_bytes = int64_t{1} << 30) {
    PrefillConfig config = Exact();
    config.stream.device = "cuda:0";
    return Open(node, config, memory_bytes);
  }
  static std::unique_ptr<PrefillBackends> Devices(EngineNode& node, const std::string& list,
                                                  DeviceExchange exchange = DeviceExchange::kAuto) {
    PrefillConfig config = Exact();
    config.stream.devices = list;
    config.stream.device_exchange = exchange;
    config.stream.device_timeout_seconds = 600;  // the model is slow
    return Open(node, config, int64_t{1} << 30);
  }
  static std::unique_ptr<PrefillBackends> Open(EngineNode& node, PrefillConfig config, int64_t memory_bytes) {
    config.stream.memory_bytes = memory_bytes;
    config.stream.dense_bytes = kDenseBytes;
    config.stream.from_tokens = 2;
    return Open(node, config, node.shared_segment());
  }
  static std::unique_ptr<PrefillBackends> Open(EngineNode& node, const PrefillConfig& config,
                                               std::shared_ptr<const weights::WeightSegment> segment) {
    return PrefillBackends::Create(config, std::move(segment), TestKernels(), node.workers()).value();
  }

  struct Result {
    Token token;
    bool streamed = false;
    int64_t devices = 0;       // devices that streamed it
    int64_t ring_slots = 0;    // 0: the run could not begin
    int64_t staged_bytes = 0;  // from memory that was not registered
  };
  Result Run(PrefillBackends* device, MlaFormChoice form = MlaFormChoice::kUnabsorbed) {
    const KvLease lease = node_.pool().Reserve({.capacity = kTokens}).value();
    return Run(device, lease, kTokens, form);
  }
  // The first tokens of the prompt, repeated; those that the lease has are not computed.
  Result Run(PrefillBackends* device, const KvLease& lease, int64_t tokens,
             MlaFormChoice form = MlaFormChoice::kUnabsorbed) {
    PrefillRunner runner(node_.engine(), node_.workers(), {.choice = form},
                         {.prefill = [device] { return device == nullptr ? nullptr : device->prefill(); },
                          .from_tokens = 2,
                          .trace_file = ""});
    PrefillJob job;
    for (int64_t i = 0; i < tokens; ++i) job.token_ids.push_back(prompt_[static_cast<size_t>(i % kTokens)]);
    job.prompt_tokens = tokens;
    const auto writer = node_.Writer(lease);
    Result result;
    const PrefillEvents events{.on_progress = {}, .on_streamed = [&](const StreamCounters& counters) {
                                 result.streamed = true;
                                 result.devices = counters.devices;
                                 result.ring_slots = counters.ring_slots;
                                 result.staged_bytes = counters.staged_bytes;
                               }};
    const auto token = runner.Run(
        job, *writer, [] { return absl::OkStatus(); }, events);
    EXPECT_TRUE(token.ok()) << token.status();
    if (token.ok()) result.token = **token;
    EXPECT_EQ(node_.pool().ValidTokens(lease), tokens);
    return result;
  }

  EngineNode node_{/*max_rows=*/16, /*nan_token=*/-1, /*page_count=*/16, {.threads = 2}, Spec()};
  const std::vector<int32_t> prompt_ = ClearPrompt(node_.engine(), kTokens, /*steps=*/1);
};

TEST_F(CudaStreamingDevicesTest, TheSameTokenAsOnTheCpu) {
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  const Result streamed = Run(device.get()), expected = Run(nullptr);
  EXPECT_TRUE(streamed.streamed);
  EXPECT_FALSE(expected.streamed);
  EXPECT_EQ(streamed.token.id, expected.token.id);
}

TEST_F(CudaStreamingDevicesTest, AllKernelsAreLoadedBeforeTheFirstPrompt) {
  ASSERT_NE(Device(node_), nullptr);
  EXPECT_GT(emulation::Gpu().known_kernels.size(), 10u) << "one of each source, not of the first launch alone";
}

// For short prompts, auto selects the absorbed form, which the device lacks.
TEST_F(CudaStreamingDevicesTest, AutoTakesTheFormThatTheDeviceHas) {
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  const Result streamed = Run(device.get(), MlaFormChoice::kAuto);
  EXPECT_TRUE(streamed.streamed);
  EXPECT_GT(streamed.ring_slots, 0) << "the run has begun";
  EXPECT_EQ(streamed.token.id, Run(device.get()).token.id);
}

TEST_F(CudaStreamingDevicesTest, InputsAreInFp8WhereTheGpuMultipliesIt) {
  const auto fp8 = [&](PrefillActivations setting, int major, int minor) {
    emulation::Gpu().major = major;
    emulation::Gpu().minor = minor;
    PrefillConfig config;
    config.stream.device = "cuda:0";
    config.activations = setting;
    return Open(node_, config, int64_t{1} << 30)->state().fp8_inputs;
  };
  using enum PrefillActivations;
  EXPECT_TRUE(fp8(kAuto, 12, 0));
  EXPECT_TRUE(fp8(kAuto, 8, 9));
  EXPECT_FALSE(fp8(kAuto, 8, 0));
  EXPECT_TRUE(fp8(kAuto, 9, 0)) << "by groups of warps";
  EXPECT_FALSE(fp8(kFp8, 10, 0)) << "conversions and products of BF16 would take its place";
  EXPECT_FALSE(fp8(kBf16, 12, 0));
}

TEST_F(CudaStreamingDevicesTest, WeightsArePinned) {
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  const Result first = Run(device.get());
  const weights::SegmentHeader& weights = node_.segment().header();
  emulation::AwaitRegistered(reinterpret_cast<const uint8_t*>(&weights) + weights.total_bytes - 1);
  const int64_t pageable = emulation::Gpu().pageable_copies;
  EXPECT_EQ(Run(device.get()).token.id, first.token.id);
  EXPECT_EQ(emulation::Gpu().pageable_copies - pageable, 6)
      << "angles, tokens, NaN flags to and fro, logits: all small";
}

// One copy a layer brings its earlier tokens, one takes its KV; one for all rows brings their tokens.
TEST_F(CudaStreamingDevicesTest, CopiesDependNeitherOnThePromptsLengthNorOnWhatIsCached) {
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  while (Run(device.get()).staged_bytes > 0) {  // until the device knows that the weights are registered
  }
  const auto copies = [&](int64_t cached, int64_t tokens) {
    const KvLease lease = node_.pool().Reserve({.capacity = tokens}).value();
    if (cached > 0) Run(nullptr, lease, cached);
    const int64_t before = emulation::Gpu().pinned_copies + emulation::Gpu().pageable_copies;
    EXPECT_TRUE(Run(device.get(), lease, tokens).streamed);
    node_.pool().Release(lease);
    return emulation::Gpu().pinned_copies + emulation::Gpu().pageable_copies - before;
  };
  const int64_t fresh = copies(0, 5);
  EXPECT_EQ(copies(0, 70), fresh) << "two KV blocks";
  const int64_t in_block = copies(30, 35);
  EXPECT_EQ(in_block, fresh + Spec().num_layers);
  EXPECT_EQ(copies(128, 133), in_block) << "a part before";
  EXPECT_EQ(copies(300, 305), in_block + Spec().num_layers) << "some parts, and the beginning of a block";
}

// As on GPUs that do not know host addresses, or while the table is not registered.
TEST_F(CudaStreamingDevicesTest, EmbeddingsAreCopiedWhereKernelsDoNotReadThem) {
  const Result expected = Run(nullptr);
  emulation::Gpu().reads_host_addresses = false;
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  while (Run(device.get()).staged_bytes > 0) {  // as above
  }
  const int64_t pinned = emulation::Gpu().pinned_copies;
  const Result result = Run(device.get());
  EXPECT_TRUE(result.streamed);
  EXPECT_EQ(result.token.id, expected.token.id);
  EXPECT_GE(emulation::Gpu().pinned_copies - pinned, kTokens);
}

// The segment as published by the weight store, mapped read-only as in the role.
TEST_F(CudaStreamingDevicesTest, ASegmentThatIsMappedForReadingIsPinned) {
  const weights::SegmentHeader& header = node_.segment().header();
  const std::string name = "moestro.streaming-devices-test-" + std::to_string(getpid());
  const absl::Cleanup unlink = [&] { EXPECT_TRUE(SharedMemory::Unlink(name).ok()); };
  std::memcpy(SharedMemory::Create(name, header.total_bytes).value().data(), &header,
              static_cast<size_t>(header.total_bytes));
  const Result expected = Run(nullptr);
  PrefillConfig config = Exact();
  config.stream.device = "cuda:0";
  config.stream.dense_bytes = kDenseBytes;
  config.stream.from_tokens = 2;
  ASSERT_TRUE(config.stream.has_gpu());
  for (const bool registers_read_only : {false, true}) {
    for (const auto kind : {SharedMemory::ReadOnly::kLiftable, SharedMemory::ReadOnly::kForGood}) {
      emulation::Gpu().registers_read_only = registers_read_only;
      const std::shared_ptr<const weights::WeightSegment> segment = weights::WeightSegment::Open(name, kind).value();
      const auto device = Open(node_, config, segment);
      ASSERT_NE(device, nullptr);
      const void* const last = segment->memory().data() + header.total_bytes - 1;
      const bool pinned = registers_read_only || kind == SharedMemory::ReadOnly::kLiftable;
      if (pinned) emulation::AwaitRegistered(last);
      EXPECT_EQ(Run(device.get()).token.id, expected.token.id);
      EXPECT_EQ(emulation::IsRegistered(last), pinned);
      EXPECT_EQ(FindMapping(0, name).value().permissions, "r--s");
    }
  }
}

// Memory taken by other processes may be free after a prompt.
TEST_F(CudaStreamingDevicesTest, WhatWasRefusedIsPinnedLater) {
  emulation::Gpu().registrable_bytes = 0;
  const auto device = Device(node_);
  ASSERT_NE(device, nullptr);
  Run(device.get());
  emulation::Gpu().registrable_bytes = int64_t{1} << 40;
  const weights::SegmentHeader& weights = node_.segment().header();
  const auto await = [&](const void* byte) {
    while (!emulation::IsRegistered(byte)) {
      device->BetweenPrompts(SteadySeconds());
      std::this_thread::yield();
    }
  };
  await(&weights);
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

// Another process, for example decode, now uses the same GPU.
TEST_F(CudaStreamingDevicesTest, AShorterRingWhereOthersHaveTakenMemorySince) {
  const auto device = Device(node_, /*memory_bytes=*/0);
  ASSERT_NE(device, nullptr);
  const Result before = Run(device.get());
  ASSERT_EQ(before.ring_slots, Spec().num_experts);
  const model::ModelWeights weights = model::BindWeights(node_.segment()).value();
  const int64_t slot = SlotBytes(engine::ListModules(Spec(), weights, model::MlaForm::kUnabsorbed, kDenseBytes));
  const int64_t others = kDenseBytes + engine::CudaActivations::Bytes(Spec(), engine::CudaSizes::OfPass(kTokens));
  constexpr int64_t kPageTables = 64 << 10;  // for weights, far less than a slot
  emulation::Gpu().memory_bytes = (int64_t{512} << 20) + others + 3 * slot + kPageTables;
  const Result after = Run(device.get());
  EXPECT_EQ(after.ring_slots, 3);
  EXPECT_EQ(after.token.id, before.token.id);
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

// The same token, whatever way rows go.
TEST_F(CudaStreamingDevicesTest, TwoExchangeFromGpuToGpuWhereTheyCan) {
  emulation::Gpu().devices = 2;
  const Result expected = Run(nullptr);
  for (const bool reaches : {true, false}) {
    for (const bool delivers : {true, false}) {
      for (const DeviceExchange exchange : {DeviceExchange::kAuto, DeviceExchange::kHost}) {
        const bool peers = reaches && delivers && exchange == DeviceExchange::kAuto;
        SCOPED_TRACE(::testing::Message()
                     << "reaches " << reaches << ", delivers " << delivers << ", expected " << peers);
        emulation::Gpu().reaches_peers = reaches;
        emulation::Gpu().delivers_peers = delivers;
        const LogCapture log;
        const auto devices = Devices(node_, "0,1", exchange);
        EXPECT_EQ(devices->state().peers, peers);
        const int64_t copies = emulation::Gpu().device_copies;
        const Result streamed = Run(devices.get());
        EXPECT_EQ(streamed.devices, 2);
        EXPECT_EQ(streamed.token.id, expected.token.id);
        EXPECT_EQ(emulation::Gpu().device_copies > copies, peers);
        const char* const said = peers                               ? ", exchanges from device to device: "
                                 : exchange == DeviceExchange::kHost ? ", exchanges through the host's memory: "
                                 : reaches ? ", exchanges through the host's memory (cuda:0 (model, compute capability "
                                             "12.0) does not copy what is in the memory of cuda:1"
                                           : ", exchanges through the host's memory (cuda:0 (model, compute capability "
                                             "12.0) does not reach the memory of cuda:1";
        EXPECT_THAT(log.lines(), ::testing::Contains(::testing::HasSubstr(said)));
      }
    }
  }
}

TEST_F(CudaStreamingDevicesTest, WhatTwoCannotIsAnErrorIfItIsDemanded) {
  emulation::Gpu().devices = 2;
  PrefillConfig config = Exact();
  config.stream.devices = "0,1";
  config.stream.device_exchange = DeviceExchange::kPeer;
  config.stream.memory_bytes = int64_t{1} << 30;
  const auto create = [&] {
    return PrefillBackends::Create(config, node_.shared_segment(), TestKernels(), node_.workers()).status();
  };
  EXPECT_EQ(create(), absl::OkStatus());
  emulation::Gpu().reaches_peers = false;
  EXPECT_EQ(create().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(create().message(), ::testing::HasSubstr("--device-exchange peer: cuda:0 (model"));
  EXPECT_THAT(create().message(), ::testing::HasSubstr("; use auto or host"));
}

TEST_F(CudaStreamingDevicesTest, GpusOfOtherKindsAreMeasuredForTheirShares) {
  weights::ModelSpec spec = Spec();
  spec.max_position_embeddings = 300;  // as many rows as a measurement needs at least
  EngineNode node{/*max_rows=*/16, /*nan_token=*/-1, /*page_count=*/16, {.threads = 2}, spec};
  emulation::Gpu().devices = 2;
  for (const bool alike : {true, false}) {
    for (const char* shares : {"auto", "3,1"}) {
      if (alike && shares != std::string("auto")) continue;
      SCOPED_TRACE(::testing::Message() << (alike ? "alike" : "unlike") << ", shares " << shares);
      emulation::Gpu().alike = alike;
      PrefillConfig config = Exact();
      config.stream.devices = "0,1";
      config.stream.device_shares = shares;
      config.stream.device_timeout_seconds = 600;  // the model is slow
      const LogCapture log;
      const auto devices = Open(node, config, int64_t{1} << 30);
      const auto costs = devices->MeasureCosts();
      ASSERT_TRUE(costs.ok()) << costs.status();
      EXPECT_EQ(costs->size(), 2u);
      const bool is_auto = config.stream.measures_shares();
      EXPECT_THAT(
          log.lines(),
          ::testing::Contains(::testing::HasSubstr("prompts are cut into parts of")).Times(is_auto && !alike ? 1 : 0));
      EXPECT_THAT(log.lines(), ::testing::Contains(::testing::HasSubstr("in parts of 3 : 1")).Times(is_auto ? 0 : 1));
      const auto known = devices->state().shares;
      ASSERT_EQ(known.size(), 2u);
      EXPECT_EQ(known[0].device, "cuda:0");
      if (alike || !is_auto) {
        EXPECT_EQ(known[0].share, is_auto ? 1 : 3);
        EXPECT_EQ(known[1].share, 1);
      }
    }
  }
}

TEST_F(CudaStreamingDevicesTest, OneOfThemStreamsUntilTheOtherIsThere) {
  const double start = SteadySeconds();
  const LogCapture log;
  const auto devices = Devices(node_, "0,1");
  EXPECT_THAT(log.lines(), ::testing::Contains(::testing::AllOf(
                               ::testing::HasSubstr("cuda:1 of --devices 0,1 is not used"),
                               ::testing::HasSubstr("there are 1 GPUs, counted from 0; see nvidia-smi -L"))));
  EXPECT_EQ(devices->state().open, 1);
  EXPECT_EQ(devices->state().shares[1].device, "cuda:1");
  EXPECT_EQ(devices->state().shares[1].share, 0) << "it is not open";
  const Result alone = Run(devices.get()), expected = Run(nullptr);
  EXPECT_TRUE(alone.streamed);
  EXPECT_EQ(alone.devices, 1);
  EXPECT_EQ(alone.token.id, expected.token.id);

  emulation::Gpu().devices = 2;
  devices->BetweenPrompts(start);  // too soon
  EXPECT_EQ(devices->state().open, 1);
  devices->BetweenPrompts(SteadySeconds() + PrefillBackends::kRetrySeconds);
  EXPECT_EQ(devices->state().open, 2);
  const Result both = Run(devices.get());
  EXPECT_EQ(both.devices, 2);
  EXPECT_EQ(both.token.id, expected.token.id);
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
  EXPECT_EQ(Device(node_)->prefill(), nullptr);
  emulation::Gpu().devices = 1;
  EXPECT_EQ(Device(node_, /*memory_bytes=*/1 << 20)->prefill(), nullptr);
  emulation::Gpu().failing_launch = emulation::Gpu().launches;  // as if the build had no kernels for it
  EXPECT_EQ(Device(node_)->prefill(), nullptr);
}

TEST_F(CudaStreamingDevicesTest, NotUsedForHeadsThatTheKernelsDoNotHave) {
  EngineNode other;
  EXPECT_EQ(Device(other)->prefill(), nullptr);
}

}  // namespace
}  // namespace moestro::prefill
