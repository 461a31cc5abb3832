#include "services/cli/model/make_model/tensor_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "common/model/schema.h"

namespace moestro::cli {
namespace {

using ::testing::ElementsAre;

std::map<std::string, PlannedTensor> PlanByName(const MakeModelOptions& options) {
  std::map<std::string, PlannedTensor> plan;
  for (const PlannedTensor& tensor : PlanTensors(*ResolveModel(options))) {
    EXPECT_TRUE(plan.emplace(tensor.name, tensor).second) << tensor.name << " occurs twice";
  }
  return plan;
}

TEST(TensorPlanTest, RealGeometryHasThePublishedShapes) {
  const auto plan = PlanByName({.preset = "layer"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers.1." + name).shape; };
  EXPECT_THAT(shape("self_attn.q_a_proj.weight_scale_inv"), ElementsAre(12, 56));
  EXPECT_THAT(shape("self_attn.q_b_proj.weight"), ElementsAre(24576, 1536));
  EXPECT_THAT(shape("self_attn.q_b_proj.weight_scale_inv"), ElementsAre(192, 12));
  EXPECT_THAT(shape("self_attn.kv_a_proj_with_mqa.weight"), ElementsAre(576, 7168));
  EXPECT_THAT(shape("self_attn.kv_a_proj_with_mqa.weight_scale_inv"), ElementsAre(5, 56));
  EXPECT_THAT(shape("self_attn.kv_b_proj.weight"), ElementsAre(32768, 512));
  EXPECT_THAT(shape("self_attn.o_proj.weight"), ElementsAre(7168, 16384));
  EXPECT_THAT(shape("mlp.gate.weight"), ElementsAre(256, 7168));
  EXPECT_THAT(shape("mlp.gate.e_score_correction_bias"), ElementsAre(256));
  EXPECT_THAT(shape("mlp.experts.255.gate_proj.weight"), ElementsAre(2048, 7168));
  EXPECT_THAT(shape("mlp.experts.255.down_proj.weight_scale_inv"), ElementsAre(56, 16));
  EXPECT_THAT(plan.at("model.layers.0.mlp.gate_proj.weight_scale_inv").shape, ElementsAre(144, 56));
  EXPECT_EQ(plan.count("model.layers.2.enorm.weight"), 0u);
}

// The counts of schema.h, by the tensors that are written.
TEST(TensorPlanTest, ParametersAreThoseThatAreCounted) {
  for (const char* preset : {"tiny", "tiny-glm"}) {
    const MadeModel model = ResolveModel({.preset = preset}).value();
    ASSERT_EQ(model.mtp_layers, 1);
    int64_t elements = 0;
    for (const PlannedTensor& tensor : PlanTensors(model)) {
      if (!tensor.name.ends_with("_scale_inv")) elements += tensor.elements();
    }
    EXPECT_EQ(elements, model::ParameterCount(model.spec) + model::PredictionLayerParameterCount(model.spec));
  }
}

TEST(TensorPlanTest, Qwen3HasThePublishedNames) {
  const auto plan = PlanByName({.preset = "tiny-qwen3"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers.2." + name).shape; };
  EXPECT_THAT(shape("self_attn.q_proj.weight"), ElementsAre(512, 256));
  EXPECT_THAT(shape("self_attn.k_proj.weight"), ElementsAre(128, 256));
  EXPECT_THAT(shape("self_attn.v_proj.weight_scale_inv"), ElementsAre(1, 2));
  EXPECT_THAT(shape("self_attn.q_norm.weight"), ElementsAre(64));
  EXPECT_THAT(shape("self_attn.k_norm.weight"), ElementsAre(64));
  EXPECT_THAT(shape("self_attn.o_proj.weight"), ElementsAre(256, 512));
  EXPECT_THAT(shape("mlp.gate.weight"), ElementsAre(16, 256));
  EXPECT_THAT(plan.at("model.layers.0.mlp.experts.15.down_proj.weight").shape, ElementsAre(256, 192));
  EXPECT_EQ(plan.count("model.layers.2.mlp.gate.e_score_correction_bias"), 0u);
  EXPECT_EQ(plan.count("model.layers.2.mlp.shared_experts.gate_proj.weight"), 0u);
}

TEST(TensorPlanTest, Qwen3WithDenseLayersAndATiedHead) {
  const auto plan = PlanByName({.preset = "tiny-qwen3-mixed"});
  EXPECT_EQ(plan.count("lm_head.weight"), 0u);
  EXPECT_DOUBLE_EQ(plan.at("model.embed_tokens.weight").deviation, 3.5 / 16);
  EXPECT_EQ(plan.at("model.norm.weight").mean, 0);
  EXPECT_EQ(plan.at("model.norm.weight").deviation, 1);
  EXPECT_EQ(plan.at("model.layers.0.input_layernorm.weight").mean, 1);
  for (const int layer : {0, 2}) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.";
    EXPECT_THAT(plan.at(prefix + "gate_proj.weight").shape, ElementsAre(576, 256));
    EXPECT_EQ(plan.count(prefix + "gate.weight"), 0u);
  }
  for (const int layer : {1, 3}) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.";
    EXPECT_THAT(plan.at(prefix + "experts.15.gate_proj.weight").shape, ElementsAre(192, 256));
    EXPECT_EQ(plan.count(prefix + "gate_proj.weight"), 0u);
  }
}

TEST(TensorPlanTest, Qwen2HasThePublishedNames) {
  const auto plan = PlanByName({.preset = "tiny-qwen2"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers.2." + name).shape; };
  EXPECT_THAT(shape("self_attn.q_proj.bias"), ElementsAre(256));
  EXPECT_THAT(shape("self_attn.v_proj.bias"), ElementsAre(128));
  EXPECT_THAT(shape("mlp.shared_expert.gate_proj.weight"), ElementsAre(448, 256));
  EXPECT_THAT(shape("mlp.shared_expert_gate.weight"), ElementsAre(1, 256));
  EXPECT_DOUBLE_EQ(plan.at("model.layers.2.mlp.shared_expert_gate.weight").deviation, 1.6 / 16);
  EXPECT_EQ(plan.size(), 3u + 3 * (2 + 4 + 3 + 1 + 16 * 3 + 3 + 1));
}

TEST(TensorPlanTest, DbrxHasThePublishedTensors) {
  for (const char* weights : {"bf16", "fp8"}) {
    const auto plan = PlanByName({.preset = "tiny-dbrx", .weights = weights});
    const auto at = [&](const std::string& name) { return plan.at("transformer.blocks.2." + name); };
    EXPECT_THAT(at("norm_attn_norm.attn.Wqkv.weight").shape, ElementsAre(256 + 2 * 128, 256));
    EXPECT_THAT(at("norm_attn_norm.norm_2.weight").shape, ElementsAre(256));
    EXPECT_THAT(at("ffn.experts.mlp.w1").shape, ElementsAre(8 * 192, 256));
    EXPECT_THAT(at("ffn.experts.mlp.w2").shape, ElementsAre(8 * 192, 256));
    EXPECT_EQ(at("ffn.experts.mlp.w2").dtype, DType::kBF16) << "the segment has parts of it";
    EXPECT_DOUBLE_EQ(at("ffn.experts.mlp.w2").deviation, 0.4 / 16);
  }
  EXPECT_EQ(PlanByName({.preset = "tiny-dbrx"}).size(), 3u + 3 * (2 + 2 + 1 + 3));
}

TEST(TensorPlanTest, MixtralHasThePublishedNames) {
  const auto plan = PlanByName({.preset = "tiny-mixtral"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers.2." + name).shape; };
  EXPECT_THAT(shape("self_attn.q_proj.weight"), ElementsAre(512, 256));
  EXPECT_THAT(shape("self_attn.k_proj.weight"), ElementsAre(256, 256));
  EXPECT_THAT(shape("self_attn.v_proj.weight"), ElementsAre(256, 256));
  EXPECT_THAT(shape("self_attn.o_proj.weight"), ElementsAre(256, 512));
  EXPECT_THAT(shape("block_sparse_moe.gate.weight"), ElementsAre(8, 256));
  EXPECT_THAT(shape("block_sparse_moe.experts.7.w1.weight"), ElementsAre(192, 256));
  EXPECT_THAT(shape("block_sparse_moe.experts.7.w2.weight"), ElementsAre(256, 192));
  EXPECT_THAT(shape("block_sparse_moe.experts.7.w3.weight"), ElementsAre(192, 256));
  EXPECT_EQ(plan.at("model.layers.2.block_sparse_moe.experts.7.w2.weight").dtype, DType::kBF16);
  EXPECT_EQ(plan.size(), 3u + 3 * (2 + 4 + 1 + 8 * 3));
}

TEST(TensorPlanTest, DeepSeekV2HasNoBiasesAndLiteNoQueryRank) {
  const auto v2 = PlanByName({.preset = "tiny-deepseek-v2"});
  EXPECT_THAT(v2.at("model.layers.2.self_attn.q_b_proj.weight").shape, ElementsAre(4 * 192, 192));
  EXPECT_THAT(v2.at("model.layers.2.mlp.shared_experts.up_proj.weight").shape, ElementsAre(2 * 96, 256));
  EXPECT_THAT(v2.at("model.layers.2.mlp.gate.weight").shape, ElementsAre(32, 256));
  EXPECT_EQ(v2.count("model.layers.2.mlp.gate.e_score_correction_bias"), 0u);
  const auto lite = PlanByName({.preset = "tiny-deepseek-v2-lite"});
  EXPECT_THAT(lite.at("model.layers.2.self_attn.q_proj.weight").shape, ElementsAre(4 * 192, 256));
  EXPECT_EQ(lite.at("model.layers.2.self_attn.q_proj.weight").deviation, 0.6 / 16) << "the gain of latent attention";
  EXPECT_EQ(lite.count("model.layers.2.self_attn.q_a_proj.weight"), 0u);
  EXPECT_EQ(lite.size(), 3u + 3 * 7 + 3 + 2 * (1 + 3 + 16 * 3));
}

TEST(TensorPlanTest, GlmHasThePublishedNames) {
  const auto plan = PlanByName({.preset = "tiny-glm"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers." + name).shape; };
  EXPECT_THAT(shape("2.self_attn.q_proj.weight"), ElementsAre(512, 256));
  EXPECT_THAT(shape("2.self_attn.q_proj.bias"), ElementsAre(512));
  EXPECT_THAT(shape("2.self_attn.k_proj.bias"), ElementsAre(256));
  EXPECT_THAT(shape("2.self_attn.v_proj.bias"), ElementsAre(256));
  EXPECT_THAT(shape("2.self_attn.q_norm.weight"), ElementsAre(128));
  EXPECT_THAT(shape("0.mlp.gate_proj.weight"), ElementsAre(576, 256));
  EXPECT_THAT(shape("2.mlp.gate.e_score_correction_bias"), ElementsAre(8));
  EXPECT_THAT(shape("2.mlp.shared_experts.down_proj.weight"), ElementsAre(256, 192));
  EXPECT_THAT(shape("3.eh_proj.weight"), ElementsAre(256, 512));  // of the prediction layer
  EXPECT_EQ(plan.at("model.layers.2.self_attn.q_proj.bias").dtype, DType::kBF16);
}

TEST(TensorPlanTest, LlamaHasThePublishedNames) {
  const auto plan = PlanByName({.preset = "tiny-llama"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers.1." + name).shape; };
  EXPECT_THAT(shape("self_attn.q_proj.weight"), ElementsAre(512, 256));
  EXPECT_THAT(shape("self_attn.v_proj.weight"), ElementsAre(256, 256));
  EXPECT_THAT(shape("mlp.gate_proj.weight"), ElementsAre(576, 256));
  EXPECT_THAT(shape("mlp.up_proj.weight"), ElementsAre(576, 256));
  EXPECT_THAT(shape("mlp.down_proj.weight"), ElementsAre(256, 576));
  EXPECT_EQ(plan.at("model.layers.1.mlp.down_proj.weight").dtype, DType::kBF16);
  EXPECT_EQ(plan.size(), 2u + 2 * (2 + 4 + 3)) << "the embedding is the head";
}

TEST(TensorPlanTest, GptOssHasThePublishedNames) {
  const auto plan = PlanByName({.preset = "tiny-gpt-oss"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers.1." + name).shape; };
  EXPECT_THAT(shape("self_attn.sinks"), ElementsAre(4));
  EXPECT_THAT(shape("self_attn.o_proj.bias"), ElementsAre(240));
  EXPECT_THAT(shape("mlp.router.weight"), ElementsAre(8, 240));
  EXPECT_THAT(shape("mlp.router.bias"), ElementsAre(8));
  EXPECT_THAT(shape("mlp.experts.gate_up_proj"), ElementsAre(8, 240, 352));
  EXPECT_THAT(shape("mlp.experts.gate_up_proj_bias"), ElementsAre(8, 352));
  EXPECT_THAT(shape("mlp.experts.down_proj"), ElementsAre(8, 176, 240));
  EXPECT_THAT(shape("mlp.experts.down_proj_bias"), ElementsAre(8, 240));
  EXPECT_EQ(plan.size(), 3u + 3 * (2 + 9 + 2 + 4));
  // Products of deviation 1, whose inputs are the second dimension.
  EXPECT_NEAR(plan.at("model.layers.1.mlp.experts.gate_up_proj").deviation, 1 / std::sqrt(240.0), 1e-9);
  EXPECT_NEAR(plan.at("model.layers.1.mlp.experts.down_proj").deviation, 0.4 / std::sqrt(176.0), 1e-9);
}

TEST(TensorPlanTest, MiniMaxHasThePublishedNames) {
  const auto plan = PlanByName({.preset = "tiny-minimax"});
  const auto shape = [&](const std::string& name) { return plan.at("model.layers.1." + name).shape; };
  EXPECT_THAT(shape("self_attn.q_norm.weight"), ElementsAre(512));
  EXPECT_THAT(shape("self_attn.k_norm.weight"), ElementsAre(256));
  EXPECT_THAT(shape("block_sparse_moe.gate.weight"), ElementsAre(8, 256));
  EXPECT_THAT(shape("block_sparse_moe.e_score_correction_bias"), ElementsAre(8));
  EXPECT_THAT(shape("block_sparse_moe.experts.7.w2.weight"), ElementsAre(256, 192));
  EXPECT_THAT(shape("block_sparse_moe.experts.7.w2.weight_scale_inv"), ElementsAre(2, 2));
}

// 671.026e9 parameters are in the 61 layers, embedding, head and norms of the published model.
TEST(TensorPlanTest, SixtyOneLayersHaveThePublishedParameterCount) {
  MadeModel model = *ResolveModel({.preset = "layer", .layers = 61});
  model.spec.first_dense_layers = 3;
  int64_t parameters = 0;
  for (const PlannedTensor& tensor : PlanTensors(model)) {
    if (tensor.recipe != Recipe::kBlockScales) parameters += tensor.elements();
  }
  EXPECT_EQ(parameters / 1'000'000, 671'026);
}

TEST(TensorPlanTest, TypesAreAsPublished) {
  const auto plan = PlanByName({});
  EXPECT_EQ(plan.at("model.embed_tokens.weight").dtype, DType::kBF16);
  EXPECT_EQ(plan.at("lm_head.weight").dtype, DType::kBF16);
  EXPECT_EQ(plan.at("model.layers.1.mlp.gate.weight").dtype, DType::kBF16);
  EXPECT_EQ(plan.at("model.layers.1.mlp.gate.e_score_correction_bias").dtype, DType::kF32);
  EXPECT_EQ(plan.at("model.layers.1.self_attn.kv_a_layernorm.weight").dtype, DType::kBF16);
  EXPECT_EQ(plan.at("model.layers.1.self_attn.kv_b_proj.weight").dtype, DType::kF8E4M3);
  EXPECT_EQ(plan.at("model.layers.1.self_attn.kv_b_proj.weight_scale_inv").dtype, DType::kF32);
  EXPECT_EQ(plan.at("model.layers.4.eh_proj.weight").dtype, DType::kBF16);
}

TEST(TensorPlanTest, PredictionLayerIsComplete) {
  const auto plan = PlanByName({});
  for (const char* name : {"embed_tokens.weight", "enorm.weight", "hnorm.weight", "eh_proj.weight",
                           "shared_head.norm.weight", "shared_head.head.weight", "input_layernorm.weight",
                           "self_attn.o_proj.weight", "post_attention_layernorm.weight", "mlp.gate.weight",
                           "mlp.experts.15.up_proj.weight", "mlp.shared_experts.down_proj.weight"}) {
    EXPECT_EQ(plan.count("model.layers.4." + std::string(name)), 1u) << name;
  }
  EXPECT_EQ(plan.at("model.layers.4.embed_tokens.weight").key, "model.embed_tokens.weight");
  EXPECT_EQ(plan.at("model.layers.4.shared_head.head.weight").key, "lm_head.weight");
}

TEST(TensorPlanTest, DequantisedCheckpointHasNoScalesAndNoFp8) {
  for (const auto& [name, tensor] : PlanByName({.weights = "bf16"})) {
    EXPECT_NE(tensor.dtype, DType::kF8E4M3) << name;
    EXPECT_FALSE(name.ends_with("_scale_inv")) << name;
  }
}

TEST(TensorPlanTest, RoutedExpertsInInt4) {
  const auto plan = PlanByName({.preset = "tiny-kimi-k2", .weights = "int4"});
  const auto at = [&](const std::string& name) { return plan.at("model.layers.2.mlp.experts.1." + name); };
  const PlannedTensor codes = at("down_proj.weight_packed"), shape = at("down_proj.weight_shape");
  const PlannedTensor scales = at("down_proj.weight_scale");
  EXPECT_STREQ(codes.dtype_name(), "I32");
  EXPECT_STREQ(scales.dtype_name(), "BF16");
  EXPECT_STREQ(shape.dtype_name(), "I64");
  EXPECT_THAT(codes.shape, ElementsAre(256, scales.cols / 8));
  EXPECT_THAT(scales.shape, ElementsAre(256, scales.cols / 32));
  EXPECT_THAT(shape.shape, ElementsAre(2));
  EXPECT_EQ(codes.bytes(), 256 * scales.cols / 2);
  EXPECT_EQ(shape.bytes(), 16);
  EXPECT_FALSE(plan.contains("model.layers.2.mlp.experts.1.down_proj.weight"));
  EXPECT_EQ(plan.at("model.layers.2.mlp.shared_experts.down_proj.weight").dtype, DType::kBF16);
  EXPECT_EQ(plan.at("model.layers.2.self_attn.o_proj.weight").dtype, DType::kBF16);
}

TEST(TensorPlanTest, RoutedExpertsInMxfp4) {
  const auto plan = PlanByName({.preset = "tiny-mixtral", .weights = "mxfp4"});
  const PlannedTensor& codes = plan.at("model.layers.0.block_sparse_moe.experts.7.w1.weight_packed");
  const PlannedTensor& scales = plan.at("model.layers.0.block_sparse_moe.experts.7.w1.weight_scale");
  EXPECT_STREQ(codes.dtype_name(), "U8");
  EXPECT_STREQ(scales.dtype_name(), "U8");
  EXPECT_THAT(codes.shape, ElementsAre(192, 128));
  EXPECT_THAT(scales.shape, ElementsAre(192, 8));
  EXPECT_FALSE(plan.contains("model.layers.0.block_sparse_moe.experts.7.w1.weight_shape"));
}

}  // namespace
}  // namespace moestro::cli
