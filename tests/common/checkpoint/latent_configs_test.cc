// What is read from config.json of families with MLA.
#include <gtest/gtest.h>

#include "common/checkpoint/config.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

TEST(ModelSpecParse, DeepSeekV3) {
  const absl::StatusOr<weights::ModelSpec> spec = Parse(Published("deepseek-v3"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "deepseek_v3");
  EXPECT_EQ(spec->num_layers, 61);
  EXPECT_EQ(spec->num_heads, 128);
  EXPECT_EQ(spec->kv_dim(), 576);
  EXPECT_EQ(spec->qk_head_dim(), 192);
  EXPECT_EQ(spec->first_dense_layers, 3);
  EXPECT_EQ(spec->num_expert_groups, 8);
  EXPECT_EQ(spec->experts_topk_groups, 4);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->routed_scaling_factor, 2.5);
  EXPECT_EQ(spec->token_count, 129280);
  EXPECT_EQ(spec->rope_theta, 10000);
  EXPECT_EQ(spec->yarn.enabled, 1);
  EXPECT_EQ(spec->yarn.factor, 40);
  EXPECT_EQ(spec->yarn.beta_fast, 32);
  EXPECT_EQ(spec->yarn.mscale_all_dim, 1);
  EXPECT_EQ(spec->yarn.attention_factor, 0);
  EXPECT_EQ(spec->yarn.original_max_position_embeddings, 4096);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 671'026);
}

TEST(ModelSpecParse, KimiK2) {
  const absl::StatusOr<weights::ModelSpec> spec = Parse(Published("kimi-k2"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "kimi_k2");
  EXPECT_EQ(spec->num_experts, 384);
  EXPECT_EQ(spec->rope_theta, 50000);
  EXPECT_EQ(spec->yarn.beta_fast, 1);
  EXPECT_EQ(spec->yarn.beta_slow, 1);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 1'026'408);
}

// The text model of Kimi-K2.5, but for its quantisation.
TEST(ModelSpecParse, LaterKimi) {
  json config = Published("kimi-k2");
  config["rms_norm_eps"] = 1e-5;
  config["max_position_embeddings"] = 262144;
  config["rope_scaling"]["beta_fast"] = 32.0;
  config["rope_scaling"]["factor"] = 64.0;
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_EQ(spec->lora_norm_eps, 1e-6);
  EXPECT_EQ(spec->yarn.beta_fast, 32);
  EXPECT_EQ(spec->yarn.factor, 64);
}

// quantization_test.cc has the settings that are supported.
TEST(ModelSpecParse, KimiInInt4) {
  json config = Published("kimi-k2");
  json weights = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}};
  config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "pack-quantized"},
                                   {"config_groups", {{"group_0", {{"weights", weights}}}}}};
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
  config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 8;
  ExpectError(Parse(config).status(), kUnimplemented,
              {"config.json: quantization_config: config_groups: group_0: weights: num_bits: 8 is not supported"});
}

TEST(ModelSpecParse, DeepSeekV2) {
  const absl::StatusOr<weights::ModelSpec> spec = Parse(Published("deepseek-v2"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "deepseek_v2");
  EXPECT_EQ(spec->q_lora_rank, 1536);
  EXPECT_EQ(spec->softmax_router, 1);
  EXPECT_EQ(spec->largest_of_group, 1);
  EXPECT_EQ(spec->num_expert_groups, 8);
  EXPECT_EQ(spec->experts_topk_groups, 3);
  EXPECT_EQ(spec->norm_topk_prob, 0);
  EXPECT_EQ(spec->routed_scaling_factor, 16);
  EXPECT_EQ(spec->num_shared_experts, 2);
  EXPECT_EQ(spec->shared_intermediate_size(), 2 * 1536);
  EXPECT_EQ(spec->yarn.mscale_all_dim, 1);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 235'741);
}

TEST(ModelSpecParse, DeepSeekV2Lite) {
  const absl::StatusOr<weights::ModelSpec> spec = Parse(Published("deepseek-v2-lite"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->q_lora_rank, 0);
  EXPECT_EQ(spec->softmax_router, 1);
  EXPECT_EQ(spec->num_expert_groups, 1);
  EXPECT_EQ(spec->norm_topk_prob, 0);
  EXPECT_EQ(spec->routed_scaling_factor, 1);
  EXPECT_EQ(spec->yarn.mscale_all_dim, 0.707);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 15'706);
}

// As transformers 5.23 saves it: a router that knows no groups has none.
TEST(ModelSpecParse, DeepSeekV2LiteInTheNewSpelling) {
  json config = Published("deepseek-v2-lite");
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"].update({{"rope_theta", 10000.0}, {"rope_type", "yarn"}});
  config["dtype"] = "bfloat16";
  for (const char* key : {"rope_theta", "rope_scaling", "torch_dtype", "scoring_func", "moe_layer_freq"})
    config.erase(key);
  config["n_group"] = config["topk_group"] = nullptr;
  config["head_dim"] = config["qk_rope_head_dim"];
  for (const json& method : {json("greedy"), json(nullptr)}) {
    config["topk_method"] = method;
    const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->num_expert_groups, 1);
    EXPECT_EQ(spec->experts_topk_groups, 1);
    EXPECT_EQ(spec->yarn.mscale_all_dim, 0.707);
  }
}

}  // namespace
}  // namespace moestro::testing
