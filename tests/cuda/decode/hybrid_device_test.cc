// The decode role with --device cuda:N, on the model of a GPU.
#include "services/decode/hybrid_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/engine/step_launches.h"
#include "tests/cuda/emulation/runtime.h"
#include "tests/cuda/near.h"
#include "tests/services/decode/decode_fixture.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {
namespace {

using ::testing::HasSubstr;

constexpr int kMaxBatch = 2;
constexpr int64_t kMaxChunk = 8;
constexpr int64_t kMaxRows = kMaxBatch + kMaxChunk;
constexpr int64_t kTokens = 3;
constexpr int64_t kFewExperts = int64_t{1} << 17;  // bytes of 2 of 8

weights::ModelSpec Spec() {
  weights::ModelSpec spec = SmallSpec();
  spec.qk_rope_head_dim = 64;
  spec.num_layers = 2;
  return spec;
}

class CudaHybridDeviceTest : public ::testing::Test {
 protected:
  CudaHybridDeviceTest() { emulation::ResetGpu(); }
  ~CudaHybridDeviceTest() override { emulation::ResetGpu(); }

  absl::StatusOr<std::unique_ptr<HybridDevice>> Device(int64_t expert_cache_bytes = 0,
                                                       const std::string& name = "cuda") {
    DecodeConfig config;
    config.device = name;
    config.max_batch = kMaxBatch;
    config.overlap = Overlap::kOn;
    config.expert_cache_bytes = expert_cache_bytes;
    return HybridDevice::Create(config, node_.segment(), TestKernels(), node_.workers(), node_.pool(),
                                {.max_batch = kMaxBatch, .max_chunk_tokens = kMaxChunk}, nullptr);
  }
  DecodeOutcome Run(ForwardPass& forward) {
    LeaseTable leases(node_.pool(), 8);
    MetricsRegistry registry("decode");
    DecodeMetrics metrics(registry);
    DecodeLoop loop(forward, node_.pool(), leases, metrics,
                    {.max_batch = kMaxBatch, .chunks = {.bound_seconds = 1000, .max_rows = kMaxChunk}});
    const auto lease = leases.Reserve({.tokens = prompt_, .max_tokens = 8, .arrival = ++arrivals_}).value();
    return Collect(*loop.Prompt(lease, {.max_tokens = kTokens}).value());
  }

  EngineNode node_{kMaxRows, -1, 16, {.threads = 2}, Spec()};
  const std::vector<int32_t> prompt_ = ClearPrompt(node_.engine(), /*length=*/10, kTokens);
  uint64_t arrivals_ = 0;
};

TEST_F(CudaHybridDeviceTest, TheSameTokensAsOnTheCpu) {
  CpuForward cpu(node_.engine());
  const DecodeOutcome expected = Run(cpu);
  ASSERT_EQ(std::ssize(expected.ids), kTokens);
  const auto hybrid = Device(kFewExperts).value();
  EXPECT_EQ(Run(hybrid->forward()).ids, expected.ids);
  EXPECT_GT(hybrid->expert_counts().hits, 0);
  // The dense weights were copied directly. Steps copy only from and to pinned memory: the lanes' exchange buffers, the
  // KV pool, and, once registered, missed experts.
  const weights::SegmentHeader& weights = node_.segment().header();
  emulation::AwaitRegistered(reinterpret_cast<const uint8_t*>(&weights) + weights.total_bytes - 1);
  emulation::AwaitRegistered(&node_.pool().PagesMemory().back());
  const int64_t pageable = emulation::Gpu().pageable_copies;
  const int64_t missed = hybrid->expert_counts().misses;
  Run(hybrid->forward());
  EXPECT_GT(hybrid->expert_counts().misses, missed);
  EXPECT_EQ(emulation::Gpu().pageable_copies, pageable);
}

TEST_F(CudaHybridDeviceTest, TheSameTokensWhereNothingCanBePinned) {
  CpuForward cpu(node_.engine());
  const DecodeOutcome expected = Run(cpu);
  emulation::Gpu().registrable_bytes = 0;
  const auto hybrid = Device(kFewExperts).value();
  EXPECT_EQ(Run(hybrid->forward()).ids, expected.ids);
  EXPECT_EQ(emulation::Gpu().registered_bytes, 0);
}

// Kernels read the sums of experts in pinned memory, and write choices there, where GPUs can; otherwise each layer
// copies them.
TEST_F(CudaHybridDeviceTest, HostMemoryIsUsedOrCopiedWithTheSameBits) {
  const auto run = [&](bool reads) {
    emulation::ResetGpu();
    emulation::Gpu().reads_host_addresses = reads;
    const auto hybrid = Device().value();
    emulation::AwaitRegistered(&node_.pool().PagesMemory().back());
    const int64_t before = emulation::Gpu().pinned_copies;
    const DecodeOutcome outcome = Run(hybrid->forward());
    return std::pair(outcome.logprobs, emulation::Gpu().pinned_copies - before);
  };
  const auto [read, copies] = run(true);
  const auto [copied, more_copies] = run(false);
  EXPECT_EQ(std::ssize(read), kTokens);
  EXPECT_EQ(read, copied);
  EXPECT_GE(more_copies - copies, 3 * kTokens * Spec().num_moe_layers()) << "x, choices and sums";
}

// After a kernel's fault, nothing works on a GPU until its process is restarted. This step and all later ones fail with
// an error that ends the role, so that its requests are resumed.
TEST_F(CudaHybridDeviceTest, AGpuThatFailsIsLostInEveryStep) {
  for (const int64_t expert_cache_bytes : {int64_t{0}, kFewExperts}) {
    {
      const auto hybrid = Device(expert_cache_bytes).value();
      emulation::Gpu().failing_launch = emulation::Gpu().launches + 30;
      for (int run = 0; run < 3; ++run) {
        const absl::Status error = Run(hybrid->forward()).error;
        EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable) << error;
        EXPECT_THAT(error.message(), HasSubstr("cudaErrorLaunchFailure"));
      }
    }
    emulation::ResetGpu();
  }
}

// Whatever launch of a layer fails, also the one that hands over choices: a thread that spins for them learns of it.
TEST_F(CudaHybridDeviceTest, AFailureInTheMiddleOfALayerIsNotWaitedForForEver) {
  const int64_t of_layer = engine::LaunchesOf(Spec()).attend_moe;
  for (int64_t failing = 0; failing <= of_layer; failing += 5) {
    {
      const auto hybrid = Device().value();
      hybrid->forward().shared().spin_seconds = failing % 2 == 0 ? 0 : 0.01;
      emulation::Gpu().failing_launch = emulation::Gpu().launches + of_layer + failing;
      const absl::Status error = Run(hybrid->forward()).error;
      EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable) << error;
      EXPECT_THAT(error.message(), HasSubstr("cudaErrorLaunchFailure"));
    }
    emulation::ResetGpu();
  }
}

TEST_F(CudaHybridDeviceTest, SaysWhyThereIsNone) {
  emulation::Gpu().devices = 0;
  const absl::Status none = Device().status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable) << "which lets the role be started again";
  EXPECT_THAT(none.message(), HasSubstr("--device cuda: looking for GPUs: cudaErrorNoDevice"));
  emulation::Gpu().devices = 1;
  const absl::Status other = Device(0, "cuda:1").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound) << "which lets the CPU take its place";
  EXPECT_THAT(other.message(), HasSubstr("--device cuda:1: cuda:1: there are 1 GPUs"));
  emulation::Gpu().memory_bytes = (int64_t{512} << 20) + 4096;  // the driver's share, and a page
  EXPECT_THAT(Device().status().message(), HasSubstr("--kv-tokens"));
}

TEST_F(CudaHybridDeviceTest, CopiesNoWeightsToAGpuThatTheBuildHasNoKernelsFor) {
  emulation::Gpu().failing_launch = 0;
  EXPECT_THAT(Device().status().message(), HasSubstr("--device cuda: "));
  EXPECT_LE(emulation::Gpu().pageable_copies, 2) << "a number, to and fro";
}

}  // namespace
}  // namespace moestro::decode
