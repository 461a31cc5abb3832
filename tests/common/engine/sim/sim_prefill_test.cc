#include "common/engine/sim/sim_prefill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/roofline/shapes.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::engine {
namespace {

class CostsTest : public testing::Test {
 protected:
  // What a step of layer 2, which has experts, costs in a prompt of so many tokens.
  device::KernelCost Cost(StepKind kind, int64_t tokens, int64_t experts = 0,
                          model::MlaForm form = model::MlaForm::kUnabsorbed) {
    std::vector<model::EngineRow> rows(tokens);
    for (int64_t i = 0; i < tokens; ++i) rows[i].position = static_cast<int32_t>(i);
    const std::vector<StagedModule> modules(experts);
    return StepCost(spec_, weights_, form, PassLoad({.rows = rows, .pages = {}}, 0), {.kind = kind, .layer = 2},
                    modules);
  }
  // Of the same layer, with activations rounded to this.
  device::KernelCost CostWith(StepKind kind, DType activations) {
    const roofline::StepLoad load{
        .rows = 64, .visible_pairs = 64, .context = 64, .routed_rows = 64, .activations = activations};
    const std::vector<StagedModule> modules(1);
    return StepCost(spec_, weights_, model::MlaForm::kUnabsorbed, load, {.kind = kind, .layer = 2}, modules);
  }

  const weights::ModelSpec spec_ = SmallSpec();
  const model::ModelWeights weights_ = roofline::ShapesOnly(spec_, DType::kF8E4M3);
};

TEST_F(CostsTest, ExpertsComputeTheirShareOfTheTokens) {
  const auto weights = static_cast<double>(3 * spec_.hidden_size * spec_.moe_intermediate_size);
  const double tokens = 64;
  const device::KernelCost all = Cost(StepKind::kExperts, 64, spec_.num_experts);
  EXPECT_DOUBLE_EQ(all.bf16_flops, 2 * weights * tokens * static_cast<double>(spec_.experts_per_token));
  EXPECT_EQ(all.attention_flops, 0);
  // Every expert's weights are read, however few tokens it has.
  EXPECT_GT(Cost(StepKind::kExperts, 1, spec_.num_experts).memory_bytes,
            weights * static_cast<double>(spec_.num_experts));
}

// The kernels that exist expand FP8 weights to BF16 and multiply that. Only activations in FP8 make products of FP8.
TEST_F(CostsTest, ProductsAreOfWhatActivationsAreRoundedTo) {
  for (const StepKind kind : {StepKind::kAttention, StepKind::kExperts, StepKind::kSharedExpert}) {
    const device::KernelCost bf16 = CostWith(kind, DType::kBF16);
    const device::KernelCost fp8 = CostWith(kind, DType::kF8E4M3);
    EXPECT_GT(bf16.bf16_flops, 0) << StepName(kind);
    EXPECT_EQ(bf16.fp8_flops, 0);
    EXPECT_EQ(bf16.fp8_depth, 0);
    EXPECT_DOUBLE_EQ(fp8.fp8_flops, bf16.bf16_flops);
    EXPECT_EQ(fp8.bf16_flops, 0);
    EXPECT_LT(fp8.memory_bytes, bf16.memory_bytes) << "inputs of half the size";
  }
  // The router's weights are no FP8.
  EXPECT_EQ(CostWith(StepKind::kRoute, DType::kF8E4M3).fp8_flops, 0);
}

TEST_F(CostsTest, ExpertsTogetherShareTheLaunchAndItsLastWave) {
  const device::KernelCost one = Cost(StepKind::kExperts, 64, 1);
  const device::KernelCost four = Cost(StepKind::kExperts, 64, 4);
  EXPECT_DOUBLE_EQ(four.bf16_flops, 4 * one.bf16_flops);
  EXPECT_DOUBLE_EQ(four.memory_bytes, 4 * one.memory_bytes);
  EXPECT_DOUBLE_EQ(four.elementwise_bytes, 4 * one.elementwise_bytes);
  EXPECT_EQ(four.bf16_depth, one.bf16_depth);
  EXPECT_EQ(four.kernels, one.kernels);
}

// As RunFp8Experts and RunGroupedMlp launch them (common/engine/cuda/feed_forward.cc): products of large and of small
// tiles of tokens, twice; in FP8 two roundings; and the addition to the sums.
TEST_F(CostsTest, EachTileOfRowsHasLaunchesAndWeightsOfItsOwn) {
  const std::vector<StagedModule> modules(2);
  for (const DType activations : {DType::kBF16, DType::kF8E4M3}) {
    const auto cost = [&](int64_t tiles) {
      const roofline::StepLoad load{.rows = 64, .routed_rows = 64, .activations = activations, .expert_tiles = tiles};
      return StepCost(spec_, weights_, model::MlaForm::kUnabsorbed, load, {.kind = StepKind::kExperts, .layer = 2},
                      modules);
    };
    const device::KernelCost one = cost(1), three = cost(3);
    EXPECT_EQ(one.kernels, activations == DType::kBF16 ? 5 : 7);
    EXPECT_EQ(three.kernels, 3 * one.kernels);
    EXPECT_DOUBLE_EQ(three.bf16_depth + three.fp8_depth, 3 * (one.bf16_depth + one.fp8_depth));
    EXPECT_EQ(three.bf16_flops, one.bf16_flops);
    EXPECT_EQ(three.fp8_flops, one.fp8_flops);
    EXPECT_EQ(three.elementwise_bytes, one.elementwise_bytes);
    const auto weights = static_cast<double>(3 * spec_.hidden_size * spec_.moe_intermediate_size);
    EXPECT_GE(three.memory_bytes, one.memory_bytes + 2 * weights * static_cast<double>(modules.size()));
  }
}

// One launch adds all outputs of a layer, behind its last experts: fewer launches, and less traffic.
TEST_F(CostsTest, OutputsOfOneTileAreAddedBehindTheLastExperts) {
  const auto cost = [&](bool at_once, int64_t index) {
    const Module module{.layer = 2, .index = index, .image = {}};
    const StagedModule staged{.module = &module};
    const roofline::StepLoad load{.rows = 64, .routed_rows = 64, .adds_at_once = at_once};
    return StepCost(spec_, weights_, model::MlaForm::kUnabsorbed, load, {.kind = StepKind::kExperts, .layer = 2},
                    {&staged, 1});
  };
  const int64_t last = spec_.num_experts - 1;
  EXPECT_EQ(cost(true, 0).kernels, cost(false, 0).kernels - 1);
  EXPECT_EQ(cost(true, last).kernels, cost(false, last).kernels);
  const double sums = static_cast<double>(64 * (spec_.experts_per_token + 1) * spec_.hidden_size * 4);
  EXPECT_DOUBLE_EQ(cost(true, last).elementwise_bytes - cost(true, 0).elementwise_bytes, sums);
  EXPECT_LT(cost(true, 0).elementwise_bytes * static_cast<double>(last + 1) + sums,
            cost(false, 0).elementwise_bytes * static_cast<double>(last + 1));
}

TEST_F(CostsTest, SpreadChangesWhatEachExpertGetsAndNotTheSum) {
  const int64_t experts = 1000;  // many: the sum comes close
  weights::ModelSpec spec = spec_;
  spec.num_experts = experts;
  std::vector<Module> modules(experts);
  for (int64_t e = 0; e < experts; ++e) modules[e].index = e;
  const auto flops = [&](double spread, int64_t expert) {
    const StagedModule staged{.module = &modules[expert]};
    const roofline::StepLoad load{.rows = 64, .routed_rows = 64, .expert_spread = spread};
    return StepCost(spec, weights_, model::MlaForm::kUnabsorbed, load, {.kind = StepKind::kExperts, .layer = 2},
                    {&staged, 1})
        .bf16_flops;
  };
  const double even = flops(0, 0);
  double sum = 0;
  double squares = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const double share = flops(0.3, e) / even;
    EXPECT_GT(share, 0);
    sum += share;
    squares += (share - 1) * (share - 1);
  }
  EXPECT_NEAR(sum / experts, 1, 0.01);
  EXPECT_NEAR(std::sqrt(squares / experts), 0.3, 0.01);
}

TEST_F(CostsTest, AttentionGrowsWithTheSquareOfAPrompt) {
  const double heads = static_cast<double>(spec_.num_heads);
  const double unabsorbed = 2 * heads * static_cast<double>(spec_.qk_head_dim() + spec_.v_head_dim);
  const double absorbed = 2 * heads * static_cast<double>(spec_.kv_dim() + spec_.kv_lora_rank);
  EXPECT_DOUBLE_EQ(Cost(StepKind::kAttention, 100).attention_flops, unabsorbed * 100 * 101 / 2);
  EXPECT_DOUBLE_EQ(Cost(StepKind::kAttention, 100, 0, model::MlaForm::kAbsorbed).attention_flops,
                   absorbed * 100 * 101 / 2);
  EXPECT_DOUBLE_EQ(Cost(StepKind::kAttention, 200).bf16_flops, 2 * Cost(StepKind::kAttention, 100).bf16_flops);
}

// A later pass sees what earlier ones, or a cached prefix, have left.
TEST_F(CostsTest, EarlierTokensAreAttendedToAndExpandedAgain) {
  std::vector<model::EngineRow> rows(10);
  for (int64_t i = 0; i < 10; ++i) rows[i].position = static_cast<int32_t>(90 + i);
  const device::KernelCost last =
      StepCost(spec_, weights_, model::MlaForm::kUnabsorbed, PassLoad({.rows = rows, .pages = {}}, 0),
               {.kind = StepKind::kAttention, .layer = 2}, {});
  const double heads = static_cast<double>(spec_.num_heads);
  EXPECT_DOUBLE_EQ(last.attention_flops,
                   2 * heads * static_cast<double>(spec_.qk_head_dim() + spec_.v_head_dim) * (10 * 90 + 10 * 11 / 2));
  const double kv_b = static_cast<double>(weights_.layers[2].attention.kv_b.rows * spec_.kv_lora_rank);
  EXPECT_DOUBLE_EQ(last.bf16_flops - Cost(StepKind::kAttention, 10).bf16_flops, 2 * kv_b * 90);
}

}  // namespace
}  // namespace moestro::engine
