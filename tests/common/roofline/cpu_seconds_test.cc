#include "common/roofline/cpu_seconds.h"

#include <gtest/gtest.h>

#include "common/checkpoint/config.h"

namespace moestro::roofline {
namespace {

CpuMachine SomeCpu() {
  return {.name = "test",
          .sockets = 2,
          .memory_bytes_per_second = 100e9,
          .bf16_flops_per_second = 1e12,
          .int8_ops_per_second = 2e12,
          .link_bytes_per_second = 10e9,
          .memory_fraction = 0.5};
}

TEST(CpuSeconds, ADecodeStepReadsWhatTheModelCounts) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("qwen3-235b");
  const CpuSeconds seconds = DecodeSeconds(SomeCpu(), spec, DType::kBF16, 99);
  EXPECT_DOUBLE_EQ(seconds.read, DecodeBytes(spec, 99, 1, 94 * 8, DType::kBF16) / 100e9);
  EXPECT_DOUBLE_EQ(seconds.compute, 94 * AttentionFlops(spec, model::MlaForm::kAbsorbed, 100) / 2e12);
  EXPECT_EQ(seconds.wait, 0);
  CpuMachine slow = SomeCpu();
  slow.bf16_decode_fraction = 0.5;
  slow.phase_seconds = 1e-6;
  const CpuSeconds slower = DecodeSeconds(slow, spec, DType::kBF16, 99);
  EXPECT_DOUBLE_EQ(slower.read, 2 * seconds.read);
  EXPECT_DOUBLE_EQ(slower.wait, 94 * 9 * 1e-6);
  EXPECT_DOUBLE_EQ(slower.total(), slower.read + slower.compute + slower.exchange + slower.wait);
}

// Half of DeepSeek-V3's bytes in INT8 or FP8; kv_b and the head stay BF16.
TEST(CpuSeconds, FormatsDifferInBytes) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  const ModelCount int8 = CountModelInFormat(spec, DType::kI8), fp8 = CountModelInFormat(spec, DType::kF8E4M3);
  EXPECT_EQ(int8.head.bytes, 2 * int8.head.elements);
  EXPECT_EQ(int8.layers[5].expert.bytes, fp8.layers[5].expert.bytes);
  const double kv_b = 128.0 * (128 + 128) * 512;
  EXPECT_EQ(int8.layers[5].attention.bytes - fp8.layers[5].attention.bytes, kv_b);
}

TEST(CpuSeconds, AnInt8PromptMultipliesAtTheInt8Rate) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("r1-distill-llama-70b");
  CpuMachine machine = SomeCpu();
  const double int8 = PromptSeconds(machine, spec, DType::kI8, 512).compute;
  machine.int8_linear_fraction = 0.5;
  const CpuSeconds as_bf16 = PromptSeconds(machine, spec, DType::kI8, 512);
  EXPECT_DOUBLE_EQ(as_bf16.compute, PromptSeconds(machine, spec, DType::kBF16, 512).compute);
  EXPECT_GT(as_bf16.compute, 1.9 * int8);
  // All linear layers, scores and sums: what work_count.h counts.
  EXPECT_NEAR(as_bf16.compute, PrefillOperations(spec, model::MlaForm::kUnabsorbed, 512) / 2e12, 1e-9);
}

// A prompt of one token meets only its own experts; a long one meets all.
TEST(CpuSeconds, APromptReadsTheExpertsThatItMeets) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("qwen3-235b");
  const ModelCount model = CountModelInFormat(spec, DType::kF8E4M3);
  const auto read = [&](int64_t tokens) { return PromptSeconds(SomeCpu(), spec, DType::kF8E4M3, tokens).read * 100e9; };
  const double others = read(1) - 94 * 8 * model.expert_bytes();
  EXPECT_NEAR(read(100000), others + 94 * 128 * model.expert_bytes(), 1);
  EXPECT_NEAR(read(2), others + 94 * (16 - 0.5) * model.expert_bytes(), 1);  // 1 - (1 - 1/16)^2 of 128
}

TEST(CpuSeconds, OneSocketExchangesNothing) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("llama-3.2-3b");
  CpuMachine machine = SomeCpu();
  EXPECT_GT(PromptSeconds(machine, spec, DType::kBF16, 64).exchange, 0);
  machine.sockets = 1;
  EXPECT_EQ(PromptSeconds(machine, spec, DType::kBF16, 64).exchange, 0);
  EXPECT_EQ(DecodeSeconds(machine, spec, DType::kBF16, 64).exchange, 0);
}

}  // namespace
}  // namespace moestro::roofline
