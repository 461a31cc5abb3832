#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "common/checkpoint/config.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

absl::StatusOr<weights::ModelSpec> Parse(const json& config, const std::string& tokenizer = "") {
  return checkpoint::ParseModelSpec(config.dump(), tokenizer);
}

TEST(ModelSpecParse, DeepSeekV3) {
  const absl::StatusOr<weights::ModelSpec> spec =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("deepseek-v3"), "");
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
  const absl::StatusOr<weights::ModelSpec> spec =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("kimi-k2"), "");
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
  json config = json::parse(checkpoint::PublishedConfig("kimi-k2"));
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
  json config = json::parse(checkpoint::PublishedConfig("kimi-k2"));
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
  const absl::StatusOr<weights::ModelSpec> spec =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("deepseek-v2"), "");
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
  const absl::StatusOr<weights::ModelSpec> spec =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("deepseek-v2-lite"), "");
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
  json config = json::parse(checkpoint::PublishedConfig("deepseek-v2-lite"));
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

TEST(ModelSpecParse, Qwen3Moe) {
  const absl::StatusOr<weights::ModelSpec> spec =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("qwen3-235b"), "");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "qwen3_moe");
  EXPECT_EQ(spec->num_heads, 64);
  EXPECT_EQ(spec->num_kv_heads, 4);
  EXPECT_TRUE(spec->attention_kind() == weights::AttentionKind::kGroupedQueries);
  EXPECT_EQ(spec->qk_head_dim(), 128);
  EXPECT_EQ(spec->v_head_dim, 128);
  EXPECT_EQ(spec->kv_dim(), 1024);
  EXPECT_EQ(spec->softmax_router, 1);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->num_expert_groups, 1);
  EXPECT_EQ(spec->first_dense_layers, 0);
  EXPECT_EQ(spec->num_shared_experts, 0);
  EXPECT_EQ(spec->yarn.enabled, 0);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 235'093);
}

TEST(ModelSpecParse, Qwen3MoeDefaults) {
  json config = json::parse(checkpoint::PublishedConfig("qwen3-235b"));
  for (const char* key : {"head_dim", "num_key_value_heads", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers",
                          "use_sliding_window"}) {
    config.erase(key);
  }
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->v_head_dim, 64);  // hidden_size / num_attention_heads
  EXPECT_EQ(spec->num_kv_heads, 64);
  EXPECT_EQ(spec->norm_topk_prob, 0);
  EXPECT_EQ(spec->yarn.enabled, 1);
}

std::vector<int64_t> LayersWithExperts(const weights::ModelSpec& spec) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < spec.num_moe_layers(); ++i) layers.push_back(spec.MoeLayer(i));
  return layers;
}

TEST(ModelSpecParse, Qwen3MoeWithDenseLayers) {
  json config = json::parse(checkpoint::PublishedConfig("qwen3-235b"));
  config["num_hidden_layers"] = 8;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {5, 1, 77};
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(LayersWithExperts(*spec), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(spec->first_dense_layers, 3);
  EXPECT_EQ(spec->MoeLayersBelow(7), 1);
  EXPECT_EQ(spec->MoeLayer(2), 8) << "there is none";
  EXPECT_EQ(spec->intermediate_size, 12288);

  config["decoder_sparse_step"] = 9;
  EXPECT_EQ(Parse(config)->num_moe_layers(), 0);
  config.erase("intermediate_size");
  ExpectError(Parse(config).status(), kInvalid, {"config.json: intermediate_size", "missing"});
}

TEST(ModelSpecParse, Qwen3MoeWithDenseLayersFarUp) {
  json config = json::parse(checkpoint::PublishedConfig("qwen3-235b"));
  config["num_hidden_layers"] = 130;
  config["mlp_only_layers"] = {2, 64, 127};
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_moe_layers(), 127);
  EXPECT_EQ(spec->MoeLayer(126), 129);
  for (const int64_t layer : {2, 64, 127}) EXPECT_FALSE(spec->IsMoeLayer(layer));
  config["mlp_only_layers"] = {2, 128};
  ExpectError(Parse(config).status(), kUnimplemented, {"config.json: mlp_only_layers", "layer 128 is dense", "128"});
  config["mlp_only_layers"] = json::array();
  config["decoder_sparse_step"] = 2;
  ExpectError(Parse(config).status(), kUnimplemented, {"config.json: decoder_sparse_step", "layer 128 is dense"});
  std::vector<int64_t> leading(129);
  std::iota(leading.begin(), leading.end(), 0);
  config["mlp_only_layers"] = leading;
  EXPECT_EQ(LayersWithExperts(*Parse(config)), (std::vector<int64_t>{129}));
}

TEST(ModelSpecParse, TiedHead) {
  json config = json::parse(checkpoint::PublishedConfig("qwen3-235b"));
  config["tie_word_embeddings"] = true;
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->tied_head, 1);
  EXPECT_EQ(model::ParameterCount(*checkpoint::ParseModelSpec(checkpoint::PublishedConfig("qwen3-235b"), "")) -
                model::ParameterCount(*spec),
            spec->vocab_size * spec->hidden_size);
}

TEST(ModelSpecParse, Qwen2Moe) {
  json config = json::parse(checkpoint::PublishedConfig("qwen2-57b"));
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "qwen2_moe");
  EXPECT_EQ(spec->num_kv_heads, 4);
  EXPECT_EQ(spec->v_head_dim, 128);
  EXPECT_EQ(spec->heads_without_norms, 1);
  EXPECT_EQ(spec->qkv_biases, 1);
  EXPECT_EQ(spec->softmax_router, 1);
  EXPECT_EQ(spec->norm_topk_prob, 0);
  EXPECT_EQ(spec->shared_intermediate_size(), 20480);
  EXPECT_EQ(spec->shared_expert_gate, 1);
  EXPECT_EQ(spec->num_moe_layers(), 28);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 57'408);
  config["qkv_bias"] = false;
  config["mlp_only_layers"] = {1};
  config["norm_topk_prob"] = true;
  const absl::StatusOr<weights::ModelSpec> other = Parse(config);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->qkv_biases, 0);
  EXPECT_EQ(other->norm_topk_prob, 1);
  EXPECT_EQ(LayersWithExperts(*other).size(), 27u);
}

TEST(ModelSpecParse, Mixtral) {
  const absl::StatusOr<weights::ModelSpec> spec =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("mixtral-8x7b"), "");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "mixtral");
  EXPECT_TRUE(spec->attention_kind() == weights::AttentionKind::kGroupedQueries);
  EXPECT_EQ(spec->heads_without_norms, 1);
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->v_head_dim, 128);  // hidden_size / num_attention_heads
  EXPECT_EQ(spec->rope_theta, 1e6);
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_EQ(spec->num_experts, 8);
  EXPECT_EQ(spec->experts_per_token, 2);
  EXPECT_EQ(spec->moe_intermediate_size, 14336);
  EXPECT_EQ(spec->softmax_router, 1);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->num_shared_experts, 0);
  EXPECT_EQ(spec->first_dense_layers, 0);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 46'702);
}

// As transformers 5.23 saves it.
TEST(ModelSpecParse, MixtralInTheNewSpelling) {
  json config = json::parse(checkpoint::PublishedConfig("mixtral-8x7b"));
  config.erase("rope_theta");
  config.erase("torch_dtype");
  config["dtype"] = "bfloat16";
  config["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  config["head_dim"] = 64;
  config["router_jitter_noise"] = 0.1;  // of training
  config["sliding_window"] = config["max_position_embeddings"];
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope_theta, 1e6);
  EXPECT_EQ(spec->v_head_dim, 64);
}

TEST(ModelSpecParse, Glm) {
  const absl::StatusOr<weights::ModelSpec> air =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("glm-4.5-air"), "");
  ASSERT_TRUE(air.ok()) << air.status();
  EXPECT_STREQ(air->family, "glm4_moe");
  EXPECT_EQ(air->num_kv_heads, 8);
  EXPECT_EQ(air->v_head_dim, 128);
  EXPECT_EQ(air->rotary_dims, 64);
  EXPECT_EQ(air->qkv_biases, 1);
  EXPECT_EQ(air->heads_without_norms, 1);
  EXPECT_EQ(air->softmax_router, 0);
  EXPECT_EQ(air->norm_topk_prob, 1);
  EXPECT_EQ(air->num_expert_groups, 1);
  EXPECT_EQ(air->num_shared_experts, 1);
  EXPECT_EQ(air->first_dense_layers, 1);
  EXPECT_EQ(air->rms_norm_eps, 1e-5);
  EXPECT_EQ(model::ParameterCount(*air) / 1'000'000, 106'852);
  const weights::ModelSpec glm = checkpoint::PublishedModel("glm-4.5");
  EXPECT_EQ(glm.heads_without_norms, 0);
  EXPECT_EQ(glm.first_dense_layers, 3);
  EXPECT_EQ(glm.routed_scaling_factor, 2.5);
  EXPECT_EQ(model::ParameterCount(glm) / 1'000'000'000, 352);
  EXPECT_EQ(checkpoint::PublishedModel("glm-4.6").max_position_embeddings, 202752);
}

// As transformers 5.23 saves it.
TEST(ModelSpecParse, GlmInTheNewSpelling) {
  json config = json::parse(checkpoint::PublishedConfig("glm-4.5-air"));
  for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor", "attention_bias", "use_qk_norm"}) {
    config.erase(key);
  }
  config["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}, {"partial_rotary_factor", 0.25}};
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary_dims, 32);
  EXPECT_EQ(spec->qkv_biases, 0);
  EXPECT_EQ(spec->heads_without_norms, 1);
  config["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_EQ(Parse(config)->rotary_dims, 64);
  config["rope_parameters"]["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(Parse(config)->rotary_dims, 0);
}

TEST(ModelSpecParse, Llama) {
  const absl::StatusOr<weights::ModelSpec> spec =
      checkpoint::ParseModelSpec(checkpoint::PublishedConfig("r1-distill-llama-70b"), "");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "llama");
  EXPECT_EQ(spec->num_layers, 80);
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->v_head_dim, 128);  // hidden_size / num_attention_heads
  EXPECT_EQ(spec->heads_without_norms, 1);
  EXPECT_EQ(spec->qkv_biases, 0);
  EXPECT_EQ(spec->intermediate_size, 28672);
  EXPECT_EQ(spec->num_moe_layers(), 0);
  EXPECT_EQ(spec->num_experts, 0);
  EXPECT_EQ(spec->experts_per_token, 0);
  EXPECT_EQ(spec->rope_theta, 5e5);
  EXPECT_EQ(spec->yarn.enabled, 0);
  EXPECT_EQ(spec->llama3_rope, 1);
  EXPECT_EQ(spec->yarn.factor, 8);
  EXPECT_EQ(spec->yarn.beta_slow, 1);
  EXPECT_EQ(spec->yarn.beta_fast, 4);
  EXPECT_EQ(spec->yarn.original_max_position_embeddings, 8192);
  EXPECT_EQ(spec->tied_head, 0);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 70'553);
  const weights::ModelSpec small = checkpoint::PublishedModel("llama-3.2-3b");
  EXPECT_EQ(small.tied_head, 1);
  EXPECT_EQ(small.yarn.factor, 32);
  EXPECT_EQ(model::ParameterCount(small) / 1'000'000, 3'212);
}

TEST(ModelSpecParse, BothSpellingsOfLlama3) {
  json old_type = json::parse(checkpoint::PublishedConfig("llama-3.2-3b"));
  json merged = old_type;
  old_type["rope_scaling"]["type"] = "llama3";
  old_type["rope_scaling"].erase("rope_type");
  merged["rope_parameters"] = merged["rope_scaling"];
  merged["rope_parameters"]["rope_theta"] = 500000.0;
  merged.erase("rope_scaling");
  merged.erase("rope_theta");
  for (const json& config : {old_type, merged}) {
    const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->llama3_rope, 1);
    EXPECT_EQ(spec->rope_theta, 5e5);
    EXPECT_EQ(spec->yarn.factor, 32);
    EXPECT_EQ(spec->yarn.beta_slow, 1);
    EXPECT_EQ(spec->yarn.beta_fast, 4);
    EXPECT_EQ(spec->yarn.original_max_position_embeddings, 8192);
  }
}

TEST(ModelSpecParse, LlamaWithoutScalingOrWithYarn) {
  json config = json::parse(checkpoint::PublishedConfig("llama-3.2-3b"));
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(Parse(config)->llama3_rope, 0);
  EXPECT_EQ(Parse(config)->yarn.factor, 1);
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(Parse(config)->llama3_rope, 0);
  EXPECT_EQ(Parse(config)->yarn.enabled, 1);
}

TEST(ModelSpecParse, MiniMaxM2) {
  json config = json::parse(checkpoint::PublishedConfig("minimax-m2"));
  absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "minimax_m2");
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->norms_of_all_heads, 1);
  EXPECT_EQ(spec->heads_without_norms, 0);
  EXPECT_EQ(spec->rotary_dims, 64);
  EXPECT_EQ(spec->v_head_dim, 128);
  EXPECT_EQ(spec->num_experts, 256);
  EXPECT_EQ(spec->moe_intermediate_size, 1536);
  EXPECT_EQ(spec->softmax_router, 0);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->routed_scaling_factor, 1);
  EXPECT_EQ(spec->num_shared_experts, 0);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 228'689);
  // As transformers 5.23 saves it.
  config.erase("rotary_dim");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 5000000.0}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary_dims, 64);
}

TEST(ModelSpecParse, NullOr0IsNoRankBetweenHiddenStateAndQueries) {
  json config = TinyConfig();
  for (const json& none : {json(nullptr), json(0)}) {
    config["q_lora_rank"] = none;
    const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->q_lora_rank, 0);
  }
}

TEST(ModelSpecParse, RmsEpsilonDoesNotReachTheLowRankNorms) {
  json config = TinyConfig();
  config["rms_norm_eps"] = 1e-5;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_EQ(spec->lora_norm_eps, 1e-6);
}

TEST(ModelSpecParse, OptionalFieldsHaveTheFamiliesDefaults) {
  json config = TinyConfig();
  config["n_shared_experts"] = nullptr;
  config["rope_scaling"] = nullptr;
  config["quantization_config"] = nullptr;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_shared_experts, 0);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->yarn.enabled, 0);
  EXPECT_EQ(spec->yarn.factor, 1);
}

TEST(ModelSpecParse, BothSpellingsOfYarn) {
  const json yarn = {
      {"factor", 4}, {"original_max_position_embeddings", 128}, {"mscale", 0.5}, {"attention_factor", 1.25}};
  json old_type = TinyConfig(), new_type = TinyConfig(), merged = TinyConfig();
  old_type["rope_scaling"] = yarn;
  old_type["rope_scaling"]["type"] = "yarn";
  old_type["torch_dtype"] = "bfloat16";
  new_type["rope_scaling"] = yarn;
  new_type["rope_scaling"]["rope_type"] = "yarn";
  merged.erase("rope_theta");
  merged["dtype"] = "bfloat16";
  merged["rope_parameters"] = yarn;
  merged["rope_parameters"].update({{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 1.0}});
  for (const json& config : {old_type, new_type, merged}) {
    const auto spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->rope_theta, 10000);
    EXPECT_EQ(spec->yarn.enabled, 1);
    EXPECT_EQ(spec->yarn.factor, 4);
    EXPECT_EQ(spec->yarn.beta_fast, 32);
    EXPECT_EQ(spec->yarn.beta_slow, 1);
    EXPECT_EQ(spec->yarn.mscale, 0.5);
    EXPECT_EQ(spec->yarn.mscale_all_dim, 0);
    EXPECT_EQ(spec->yarn.attention_factor, 1.25);
    EXPECT_EQ(spec->yarn.original_max_position_embeddings, 128);
  }
}

TEST(ModelSpecParse, MergedRopeWithoutScaling) {
  json config = TinyConfig();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 50000.0}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope_theta, 50000);
  EXPECT_EQ(spec->yarn.enabled, 0);
}

TEST(ModelSpecParse, OriginalLengthMayLieBesideTheRopeSettings) {
  json config = TinyConfig();
  config["original_max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->yarn.original_max_position_embeddings, 64);
}

struct Rejection {
  std::string field;  // its last part names the field of the message
  json value;         // of `field`; discarded = the field is removed
  absl::StatusCode code;
  std::string part;  // of the message
};

TEST(ModelSpecReject, SingleFields) {
  const json removed(json::value_t::discarded);
  const std::vector<Rejection> cases = {
      {"model_type", removed, kInvalid, "missing"},
      {"model_type", 3, kUnimplemented, "(supported: dbrx, deepseek_v2, deepseek_v3, kimi_k2, "},
      {"model_type", "deepseek_v1", kUnimplemented, "\"deepseek_v1\" is not supported (supported: dbrx, "},
      {"partial_rotary_factor", 0.5, kUnimplemented, "only 1 is supported"},
      {"model_type", "deepseek_v32", kUnimplemented, "\"deepseek_v32\" is not supported: it needs sparse attention"},
      {"model_type", "glm4_moe_lite", kUnimplemented, "\"glm4_moe_lite\""},
      {"model_type", "gpt_oss", kUnimplemented, "\"gpt_oss\""},
      {"model_type", "kimi_linear", kUnimplemented, "\"kimi_linear\""},
      {"hidden_size", removed, kInvalid, "missing"},
      {"hidden_size", nullptr, kInvalid, "missing"},
      {"hidden_size", 0, kInvalid, "0 is out of range"},
      {"hidden_size", -64, kInvalid, "-64 is out of range"},
      {"hidden_size", 131073, kInvalid, "out of range [1, 131072]"},
      {"hidden_size", 64.5, kInvalid, "not an integer"},
      {"hidden_size", "64", kInvalid, "\"64\" is not an integer"},
      {"hidden_size", UINT64_MAX, kInvalid, "out of range"},
      {"num_hidden_layers", 1025, kInvalid, "out of range"},
      {"num_attention_heads", 0, kInvalid, "out of range"},
      {"q_lora_rank", removed, kInvalid, "missing"},
      {"q_lora_rank", -1, kInvalid, "out of range"},
      {"kv_lora_rank", 96, kUnimplemented, "96 is not a multiple of 64"},
      {"qk_nope_head_dim", 96, kUnimplemented, "96 is not a multiple of 64"},
      {"v_head_dim", 32, kUnimplemented, "32 is not a multiple of 64"},
      {"qk_rope_head_dim", 15, kUnimplemented, "15 is not a multiple of 2"},
      {"intermediate_size", 262145, kInvalid, "out of range"},
      {"moe_intermediate_size", 0, kInvalid, "out of range"},
      {"n_routed_experts", 4097, kInvalid, "out of range"},
      {"num_experts_per_tok", 0, kInvalid, "out of range"},
      {"num_experts_per_tok", 9, kInvalid, "9 is more than n_routed_experts = 8"},
      {"num_experts_per_tok", 5, kInvalid, "5 is more than the 4 experts in topk_group groups"},
      {"n_shared_experts", -1, kInvalid, "out of range"},
      {"first_k_dense_replace", 3, kInvalid, "3 is more than num_hidden_layers = 2"},
      {"n_group", removed, kInvalid, "missing"},
      {"n_group", 3, kInvalid, "3 does not divide n_routed_experts = 8"},
      {"n_group", 8, kInvalid, "fewer than 2 experts"},
      {"topk_group", 5, kInvalid, "5 is more than n_group = 4"},
      {"norm_topk_prob", 1, kInvalid, "not true or false"},
      {"routed_scaling_factor", 0, kInvalid, "out of range"},
      {"routed_scaling_factor", "2.5", kInvalid, "not a number"},
      {"vocab_size", (1 << 24) + 1, kInvalid, "out of range"},
      {"max_position_embeddings", 0, kInvalid, "out of range"},
      {"rms_norm_eps", 0, kInvalid, "out of range"},
      {"rope_theta", removed, kInvalid, "missing"},
      {"rope_theta", 1, kInvalid, "out of range"},
      {"scoring_func", "softmax", kUnimplemented, "\"softmax\" is not supported (supported: sigmoid)"},
      {"topk_method", "group_limited_greedy", kUnimplemented, "supported: noaux_tc"},
      {"moe_layer_freq", 2, kUnimplemented, "only 1"},
      {"hidden_act", "gelu", kUnimplemented, "supported: silu"},
      {"attention_bias", true, kUnimplemented, "true is not supported"},
      {"tie_word_embeddings", "yes", kInvalid, "\"yes\" is not true or false"},
      {"rope_interleave", false, kUnimplemented, "false is not supported"},
      {"torch_dtype", "float16", kUnimplemented, "\"float16\""},
      {"dtype", "float16", kUnimplemented, "\"float16\""},
      {"rope_scaling", "yarn", kInvalid, "not an object"},
      {"quantization_config", "fp8", kInvalid, "not an object"},
  };
  for (const Rejection& rejection : cases) {
    json config = TinyConfig();
    if (rejection.value.is_discarded()) {
      config.erase(rejection.field);
    } else {
      config[rejection.field] = rejection.value;
    }
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
}

TEST(ModelSpecReject, RopeFields) {
  const json yarn = {{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 128}};
  const std::vector<Rejection> cases = {
      {"type", "linear", kUnimplemented, "rope_type: \"linear\" is not supported (supported: yarn, or none)"},
      {"type", "dynamic", kUnimplemented, "rope_type: \"dynamic\""},
      {"rope_type", "longrope", kInvalid, "rope_type: contradicts"},
      {"type", 1, kInvalid, "type: 1 is not a string"},
      {"factor", nullptr, kInvalid, "factor: missing"},
      {"factor", 0.5, kInvalid, "factor: 0.5 is out of range"},
      {"beta_fast", 0.5, kInvalid, "beta_fast: is less than beta_slow"},
      {"beta_slow", -1, kInvalid, "beta_slow: -1 is out of range"},
      {"mscale", "1", kInvalid, "mscale: \"1\" is not a number"},
      {"mscale_all_dim", -1, kInvalid, "mscale_all_dim: -1 is out of range"},
      {"attention_factor", 0, kInvalid, "attention_factor: 0 is out of range"},
      {"original_max_position_embeddings", nullptr, kInvalid, "original_max_position_embeddings: missing"},
      {"original_max_position_embeddings", 0, kInvalid, "original_max_position_embeddings: 0"},
      {"truncate", false, kUnimplemented, "truncate: false is not supported"},
  };
  for (const Rejection& rejection : cases) {
    json config = TinyConfig();
    config["rope_scaling"] = yarn;
    config["rope_scaling"][rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: rope_scaling: " + rejection.part});
  }
}

TEST(ModelSpecReject, QuantizationFields) {
  const json fp8 = json::parse(checkpoint::PublishedConfig("deepseek-v3"))["quantization_config"];
  const std::vector<Rejection> cases = {
      {"quant_method", "modelopt", kUnimplemented, "\"modelopt\" is not supported"},
      {"quant_method", nullptr, kInvalid, "missing"},
      {"fmt", "e5m2", kUnimplemented, "\"e5m2\""},
      {"activation_scheme", "static", kUnimplemented, "\"static\""},
      {"weight_block_size", json::array({64, 128}), kUnimplemented, "[128, 128]"},
      {"weight_block_size", 128, kUnimplemented, "[128, 128]"},
      {"weight_block_size", nullptr, kUnimplemented, "[128, 128]"},
  };
  for (const Rejection& rejection : cases) {
    json config = TinyConfig();
    config["quantization_config"] = fp8;
    config["quantization_config"][rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.part);
    ExpectError(Parse(config).status(), rejection.code,
                {"config.json: quantization_config: " + rejection.field, rejection.part});
  }
  json config = TinyConfig();
  config["quantization_config"] = fp8;
  config["quantization_config"]["scale_fmt"] = "ue8m0";
  config["quantization_config"]["modules_to_not_convert"] = json::array({"lm_head"});
  EXPECT_TRUE(Parse(config).ok());
}

TEST(ModelSpecReject, Qwen3MoeFields) {
  const std::vector<Rejection> cases = {
      {"num_key_value_heads", 3, kInvalid, "3 does not divide num_attention_heads = 64"},
      {"num_key_value_heads", 0, kInvalid, "out of range"},
      {"head_dim", 96, kUnimplemented, "96 is not a multiple of 64"},
      {"use_sliding_window", true, kUnimplemented, "true is not supported"},
      {"num_experts", 0, kInvalid, "out of range"},
      {"num_experts_per_tok", 129, kInvalid, "129 is more than num_experts = 128"},
      {"decoder_sparse_step", 0, kInvalid, "0 is out of range"},
      {"mlp_only_layers", 3, kInvalid, "is not a list of layers, numbered from 0"},
      {"mlp_only_layers", json::array({3, -1}), kInvalid, "is not a list of layers, numbered from 0"},
      {"mlp_only_layers", json::array({"3"}), kInvalid, "is not a list of layers, numbered from 0"},
      {"attention_bias", true, kUnimplemented, "true is not supported"},
  };
  for (const Rejection& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("qwen3-235b"));
    config[rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
  json config = json::parse(checkpoint::PublishedConfig("qwen3-235b"));
  config.erase("head_dim");
  config["num_attention_heads"] = 60;
  ExpectError(Parse(config).status(), kInvalid, {"config.json: head_dim", "does not divide hidden_size"});
}

TEST(ModelSpecParse, Dbrx) {
  json config = json::parse(checkpoint::PublishedConfig("dbrx"));
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "dbrx");
  EXPECT_EQ(spec->num_layers, 40);
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->v_head_dim, 128);
  EXPECT_EQ(spec->heads_without_norms, 1);
  EXPECT_EQ(spec->layer_norms, 1);
  EXPECT_EQ(spec->clip_qkv, 8);
  EXPECT_EQ(spec->rope_theta, 5e5);
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_EQ(spec->num_experts, 16);
  EXPECT_EQ(spec->experts_per_token, 4);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->max_position_embeddings, 32768);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 131'596);
  config["attn_config"].erase("clip_qkv");
  config["ffn_config"]["moe_normalize_expert_weights"] = nullptr;
  config["attn_config"].erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  const absl::StatusOr<weights::ModelSpec> other = Parse(config);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->clip_qkv, 0);
  EXPECT_EQ(other->norm_topk_prob, 0);
  EXPECT_EQ(other->rope_theta, 1e6);
}

TEST(ModelSpecReject, DbrxFields) {
  struct Case {
    const char* pointer;
    json value;
    absl::StatusCode code;
    const char* field;
    const char* part;
  };
  const std::vector<Case> cases = {
      {"/n_layers", nullptr, kInvalid, "config.json: n_layers", "missing"},
      {"/n_heads", 56, kInvalid, "config.json: n_heads", "56 does not divide d_model = 6144"},
      {"/n_heads", 64, kUnimplemented, "config.json: d_model", "6144 is not a multiple of 4096"},
      {"/attn_config", nullptr, kInvalid, "config.json: attn_config: kv_n_heads", "missing"},
      {"/attn_config/kv_n_heads", 7, kInvalid, "config.json: attn_config: kv_n_heads", "7 does not divide n_heads"},
      {"/attn_config/clip_qkv", -1, kInvalid, "config.json: attn_config: clip_qkv", "out of range"},
      {"/attn_config/rope_theta", nullptr, kInvalid, "config.json: attn_config: rope_theta", "missing"},
      {"/ffn_config/moe_top_k", 17, kInvalid, "config.json: ffn_config: moe_top_k", "17 is more than moe_num_experts"},
      {"/ffn_config/ffn_hidden_size", 0, kInvalid, "config.json: ffn_config: ffn_hidden_size", "out of range"},
      {"/ffn_config/ffn_act_fn", {{"name", "gelu"}}, kUnimplemented, "ffn_act_fn: name", "\"gelu\" is not supported"},
      {"/ffn_config/moe_normalize_expert_weights", 2, kUnimplemented, "moe_normalize_expert_weights",
       "only 1 and null"},
      {"/rope_parameters",
       {{"rope_type", "yarn"}},
       kUnimplemented,
       "config.json: rope_parameters",
       "supported: default"},
      {"/rope_parameters",
       {{"rope_theta", 10000.0}},
       kInvalid,
       "config.json: attn_config: rope_theta",
       "500000 contradicts rope_parameters: rope_theta = 10000; keep the right one"},
      {"/tie_word_embeddings", true, kUnimplemented, "config.json: tie_word_embeddings", "true is not supported"},
  };
  for (const Case& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("dbrx"));
    config[json::json_pointer(rejection.pointer)] = rejection.value;
    SCOPED_TRACE(rejection.pointer);
    ExpectError(Parse(config).status(), rejection.code, {rejection.field, rejection.part});
  }
}

TEST(ModelSpecReject, Qwen2MoeFields) {
  const std::vector<Rejection> cases = {
      {"shared_expert_intermediate_size", nullptr, kInvalid, "missing"},
      {"shared_expert_intermediate_size", 0, kInvalid, "out of range"},
      {"qkv_bias", 1, kInvalid, "1 is not true or false"},
      {"use_sliding_window", true, kUnimplemented, "true is not supported"},
      {"num_experts_per_tok", 65, kInvalid, "65 is more than num_experts = 64"},
  };
  for (const Rejection& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("qwen2-57b"));
    config[rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
}

TEST(ModelSpecReject, MixtralFields) {
  const std::vector<Rejection> cases = {
      {"sliding_window", 32767, kUnimplemented, "32767 is less than max_position_embeddings = 32768"},
      {"sliding_window", 0, kInvalid, "out of range"},
      {"sliding_window", "all", kInvalid, ""},
      {"num_local_experts", nullptr, kInvalid, "missing"},
      {"num_experts_per_tok", 9, kInvalid, "9 is more than num_local_experts = 8"},
      {"intermediate_size", 0, kInvalid, "out of range"},
      {"num_key_value_heads", 5, kInvalid, "5 does not divide num_attention_heads = 32"},
      {"head_dim", 96, kUnimplemented, "96 is not a multiple of 64"},
      {"attention_bias", true, kUnimplemented, "true is not supported"},
      {"hidden_act", "gelu", kUnimplemented, "\"gelu\" is not supported"},
      {"tie_word_embeddings", "yes", kInvalid, "\"yes\" is not true or false"},
  };
  for (const Rejection& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("mixtral-8x7b"));
    config[rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
}

TEST(ModelSpecReject, LlamaFields) {
  const std::vector<Rejection> cases = {
      {"/intermediate_size", nullptr, kInvalid, "intermediate_size: missing"},
      {"/attention_bias", true, kUnimplemented, "attention_bias: true is not supported"},
      {"/mlp_bias", true, kUnimplemented, "mlp_bias: true is not supported"},
      {"/head_dim", 96, kUnimplemented, "head_dim: 96 is not a multiple of 64"},
      {"/num_key_value_heads", 5, kInvalid, "num_key_value_heads: 5 does not divide num_attention_heads = 24"},
      {"/rope_scaling/rope_type", "linear", kUnimplemented,
       "rope_scaling: rope_type: \"linear\" is not supported (supported: llama3, yarn, or none)"},
      {"/rope_scaling/factor", nullptr, kInvalid, "rope_scaling: factor: missing"},
      {"/rope_scaling/factor", 0.5, kInvalid, "rope_scaling: factor: 0.5 is out of range"},
      {"/rope_scaling/low_freq_factor", nullptr, kInvalid, "rope_scaling: low_freq_factor: missing"},
      {"/rope_scaling/low_freq_factor", 4.0, kInvalid, "high_freq_factor: is not greater than low_freq_factor"},
      {"/rope_scaling/high_freq_factor", 0, kInvalid, "rope_scaling: high_freq_factor: 0 is out of range"},
      {"/rope_scaling/original_max_position_embeddings", nullptr, kInvalid,
       "rope_scaling: original_max_position_embeddings: missing"},
  };
  for (const Rejection& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("llama-3.2-3b"));
    config[json::json_pointer(rejection.field)] = rejection.value;
    SCOPED_TRACE(rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: ", rejection.part});
  }
  json config = json::parse(checkpoint::PublishedConfig("qwen3-235b"));
  config["rope_scaling"] = json::parse(checkpoint::PublishedConfig("llama-3.2-3b"))["rope_scaling"];
  ExpectError(Parse(config).status(), kUnimplemented,
              {"config.json: rope_scaling: rope_type: \"llama3\" is not supported (supported: yarn, or none)"});
}

TEST(ModelSpecReject, GlmFields) {
  const std::vector<Rejection> cases = {
      {"partial_rotary_factor", 0.3, kUnimplemented, "38.4"},
      {"partial_rotary_factor", 0, kUnimplemented, "0 of the 128 numbers"},
      {"partial_rotary_factor", 1.5, kInvalid, ""},
      {"attention_bias", "yes", kInvalid, ""},
      {"first_k_dense_replace", 47, kInvalid, "47 is more than num_hidden_layers = 46"},
      {"n_routed_experts", nullptr, kInvalid, "missing"},
      {"num_experts_per_tok", 129, kInvalid, "129 is more than n_routed_experts = 128"},
  };
  for (const Rejection& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("glm-4.5-air"));
    config[rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
}

TEST(ModelSpecReject, MiniMaxM2Fields) {
  const std::vector<Rejection> cases = {
      {"rotary_dim", 63, kUnimplemented, "63 of the 128 numbers of a head rotate"},
      {"rotary_dim", 130, kUnimplemented, "130 of the 128"},
      {"scoring_func", "softmax", kUnimplemented, "\"softmax\""},
      {"use_routing_bias", false, kUnimplemented, "false is not supported"},
      {"use_qk_norm", false, kUnimplemented, "false is not supported"},
      {"qk_norm_type", "per_head", kUnimplemented, "\"per_head\""},
      {"shared_intermediate_size", 1536, kUnimplemented, "only 0"},
      {"attn_type_list", {1, 0, 1}, kUnimplemented, "full attention in every layer"},
      {"num_experts_per_tok", 257, kInvalid, "257 is more than num_local_experts = 256"},
  };
  for (const Rejection& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("minimax-m2"));
    config[rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
}

TEST(ModelSpecReject, DeepSeekV2Fields) {
  const std::vector<Rejection> cases = {
      {"scoring_func", "sigmoid", kUnimplemented, "\"sigmoid\" is not supported (supported: softmax)"},
      {"topk_method", "noaux_tc", kUnimplemented, "supported: greedy, group_limited_greedy"},
      {"norm_topk_prob", true, kUnimplemented, "true is not supported"},
      {"n_group", nullptr, kInvalid, "missing"},
      {"n_group", 7, kInvalid, "7 does not divide n_routed_experts = 160"},
      {"topk_group", 9, kInvalid, "9 is more than n_group = 8"},
      {"num_experts_per_tok", 61, kInvalid, "61 is more than the 60 experts in topk_group groups"},
      {"q_lora_rank", "none", kInvalid, "not an integer"},
      {"moe_layer_freq", 2, kUnimplemented, "only 1"},
  };
  for (const Rejection& rejection : cases) {
    json config = json::parse(checkpoint::PublishedConfig("deepseek-v2"));
    config[rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
  json config = json::parse(checkpoint::PublishedConfig("deepseek-v2"));
  config.update({{"n_group", 160}, {"topk_group", 6}});
  EXPECT_TRUE(Parse(config).ok()) << "the largest of one is one";
}

TEST(ModelSpecReject, KimiHasOneGroup) {
  json config = TinyConfig();
  config["model_type"] = "kimi_k2";
  ExpectError(Parse(config).status(), kUnimplemented, {"config.json: n_group", "kimi_k2"});
}

TEST(ModelSpecReject, TooManyExpertsInAllLayers) {
  json config = TinyConfig();
  config["num_hidden_layers"] = 1000;
  config["n_routed_experts"] = 4096;
  ExpectError(Parse(config).status(), kInvalid, {"config.json: n_routed_experts", "in all layers"});
}

TEST(ModelSpecReject, MalformedDocuments) {
  ExpectError(checkpoint::ParseModelSpec("", "").status(), kInvalid, {"config.json"});
  ExpectError(checkpoint::ParseModelSpec("[]", "").status(), kInvalid, {"config.json"});
  ExpectError(checkpoint::ParseModelSpec(R"({"a":1,"a":2})", "").status(), kInvalid,
              {"config.json", "duplicate key 'a'"});
}

// The extreme shape within the bounds: the count must not overflow (the sanitizer build would stop here).
TEST(ModelSpecParse, TheLargestAllowedModelDoesNotOverflow) {
  json config = TinyConfig();
  config.update({{"hidden_size", 1 << 17},
                 {"num_hidden_layers", 64},
                 {"num_attention_heads", 4096},
                 {"n_routed_experts", 4096},
                 {"n_shared_experts", 64},
                 {"moe_intermediate_size", 1 << 18},
                 {"intermediate_size", 1 << 18},
                 {"kv_lora_rank", 1 << 17},
                 {"qk_nope_head_dim", 1024},
                 {"v_head_dim", 1024},
                 {"vocab_size", 1 << 24}});
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_GT(model::ParameterCount(*spec), int64_t{1} << 54);
  EXPECT_LT(model::ParameterCount(*spec), int64_t{1} << 60);
}

TEST(TokenCount, HighestIdOfVocabularyAndAddedTokens) {
  const std::string vocab = R"({"model":{"vocab":{"a":0,"b":7}}})";
  const std::string added = R"({"added_tokens":[{"id":30,"content":"<s>"}],"model":{"vocab":{"a":0,"b":7}}})";
  EXPECT_EQ(Parse(TinyConfig())->token_count, 40);
  EXPECT_EQ(Parse(TinyConfig(), vocab)->token_count, 8);
  EXPECT_EQ(Parse(TinyConfig(), added)->token_count, 31);
}

TEST(TokenCount, RefusesIdsOutsideTheVocabulary) {
  const auto refuse = [](const std::string& tokenizer, const std::vector<std::string>& parts) {
    ExpectError(Parse(TinyConfig(), tokenizer).status(), kInvalid, {"tokenizer.json"});
    ExpectError(Parse(TinyConfig(), tokenizer).status(), kInvalid, parts);
  };
  refuse("{}", {"model.vocab"});
  refuse(R"({"model":{"vocab":[]}})", {"model.vocab"});
  refuse(R"({"model":{"vocab":{}}})", {"model.vocab"});
  refuse(R"({"model":{"vocab":{"a":40}}})", {"'a'", "id 40", "vocab_size = 40"});
  refuse(R"({"model":{"vocab":{"a":-1}}})", {"'a'", "id -1"});
  refuse(R"({"model":{"vocab":{"a":"1"}}})", {"'a'", "id \"1\""});
  refuse(R"({"added_tokens":[{"id":40,"content":"<s>"}],"model":{"vocab":{"a":0}}})", {"'<s>'", "id 40"});
  refuse(R"({"added_tokens":[{"id":4}],"model":{"vocab":{"a":0}}})", {"added_tokens", "content"});
  refuse(R"({"added_tokens":{},"model":{"vocab":{"a":0}}})", {"added_tokens", "not an array"});
}

}  // namespace
}  // namespace moestro::testing
