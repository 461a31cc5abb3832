// What is read from config.json of families with grouped queries.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "common/checkpoint/config.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

TEST(ModelSpecParse, Qwen3Moe) {
  const absl::StatusOr<weights::ModelSpec> spec = Parse(Published("qwen3-235b"));
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
  json config = Published("qwen3-235b");
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
  json config = Published("qwen3-235b");
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
  json config = Published("qwen3-235b");
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
  json config = Published("qwen3-235b");
  config["tie_word_embeddings"] = true;
  const absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->tied_head, 1);
  EXPECT_EQ(model::ParameterCount(*checkpoint::ParseModelSpec(checkpoint::PublishedConfig("qwen3-235b"), "")) -
                model::ParameterCount(*spec),
            spec->vocab_size * spec->hidden_size);
}

TEST(ModelSpecParse, Qwen2Moe) {
  json config = Published("qwen2-57b");
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
  const absl::StatusOr<weights::ModelSpec> spec = Parse(Published("mixtral-8x7b"));
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
  json config = Published("mixtral-8x7b");
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
  const absl::StatusOr<weights::ModelSpec> air = Parse(Published("glm-4.5-air"));
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
  json config = Published("glm-4.5-air");
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

TEST(ModelSpecParse, GptOss) {
  json config = Published("gpt-oss-20b");
  absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_STREQ(spec->family, "gpt_oss");
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->v_head_dim, 64);
  EXPECT_EQ(spec->heads_without_norms, 1);
  EXPECT_EQ(spec->qkv_biases, 1);
  EXPECT_EQ(spec->output_bias, 1);
  EXPECT_EQ(spec->attention_sinks, 1);
  EXPECT_EQ(spec->sliding_window, 128);
  EXPECT_EQ(spec->windowed_layers[0], 0x555555u);
  EXPECT_EQ(spec->WindowOf(22), 128);
  EXPECT_EQ(spec->WindowOf(23), 0);
  EXPECT_EQ(spec->softmax_router, 1);
  EXPECT_EQ(spec->norm_topk_prob, 1);
  EXPECT_EQ(spec->router_bias, 1);
  EXPECT_EQ(spec->expert_biases, 1);
  EXPECT_EQ(spec->swiglu_limit, 7);
  EXPECT_EQ(spec->swiglu_alpha, 1.702);
  EXPECT_EQ(spec->yarn.enabled, 1);
  EXPECT_EQ(spec->yarn.factor, 32);
  EXPECT_EQ(spec->yarn_between_pairs, 1);
  EXPECT_EQ(spec->rope_theta, 150000);
  EXPECT_EQ(spec->tied_head, 0);
  EXPECT_EQ(model::ParameterCount(*spec) / 1'000'000, 20'914);  // 20.91 B are published
  const weights::ModelSpec large = checkpoint::PublishedModel("gpt-oss-120b");
  EXPECT_EQ(large.num_experts, 128);
  EXPECT_EQ(large.windowed_layers[0], 0x555555555u);
  EXPECT_EQ(model::ParameterCount(large) / 1'000'000, 116'829);  // 116.83 B
  // As transformers 5.23 saves it; what it leaves out is the same.
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = 150000.0;
  for (const char* key : {"rope_scaling", "rope_theta", "layer_types", "swiglu_limit", "attention_bias"}) {
    config.erase(key);
  }
  const absl::StatusOr<weights::ModelSpec> saved = Parse(config);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(std::memcmp(&*saved, &*spec, sizeof *spec), 0);
}

TEST(ModelSpecParse, GptOssWithOtherChoices) {
  json config = Published("gpt-oss-20b");
  config["num_hidden_layers"] = 2;
  config["layer_types"] = {"full_attention", "sliding_attention"};
  config["sliding_window"] = 33;
  config["attention_bias"] = false;
  config["swiglu_alpha"] = 1.25;
  config["rope_scaling"]["truncate"] = true;
  absl::StatusOr<weights::ModelSpec> spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->windowed_layers[0], 2u);
  EXPECT_EQ(spec->WindowOf(1), 33);
  EXPECT_EQ(spec->qkv_biases, 0);
  EXPECT_EQ(spec->output_bias, 0);
  EXPECT_EQ(spec->swiglu_alpha, 1.25);
  EXPECT_EQ(spec->yarn_between_pairs, 0);
  config["layer_types"] = {"full_attention", "full_attention"};
  config["sliding_window"] = nullptr;
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sliding_window, 0);
}

TEST(ModelSpecParse, Llama) {
  const absl::StatusOr<weights::ModelSpec> spec = Parse(Published("r1-distill-llama-70b"));
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
  json old_type = Published("llama-3.2-3b");
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
  json config = Published("llama-3.2-3b");
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(Parse(config)->llama3_rope, 0);
  EXPECT_EQ(Parse(config)->yarn.factor, 1);
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(Parse(config)->llama3_rope, 0);
  EXPECT_EQ(Parse(config)->yarn.enabled, 1);
}

TEST(ModelSpecParse, MiniMaxM2) {
  json config = Published("minimax-m2");
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

TEST(ModelSpecParse, Dbrx) {
  json config = Published("dbrx");
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

}  // namespace
}  // namespace moestro::testing
