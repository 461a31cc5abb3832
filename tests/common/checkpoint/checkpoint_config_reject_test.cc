// Which config.json is refused, and in which words.
#include <gtest/gtest.h>

#include "common/checkpoint/config.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro::testing {
namespace {

using nlohmann::json;

struct Rejection {
  std::string field;  // its last part names the field of the message
  json value;         // of `field`; discarded = the field is removed
  absl::StatusCode code;
  std::string part;  // of the message
};

void ExpectRejected(const json& accepted, const std::vector<Rejection>& cases) {
  for (const Rejection& rejection : cases) {
    json config = accepted;
    if (rejection.value.is_discarded()) {
      config.erase(rejection.field);
    } else {
      config[rejection.field] = rejection.value;
    }
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: " + rejection.field, rejection.part});
  }
}

TEST(ModelSpecReject, SingleFields) {
  const json removed(json::value_t::discarded);
  const std::vector<Rejection> cases = {
      {"model_type", removed, kInvalid, "missing"},
      {"model_type", 3, kUnimplemented, "(supported: dbrx, deepseek_v2, deepseek_v3, kimi_k2, "},
      {"model_type", "deepseek_v1", kUnimplemented, "\"deepseek_v1\" is not supported (supported: dbrx, "},
      {"partial_rotary_factor", 0.5, kUnimplemented, "only 1 is supported"},
      {"model_type", "deepseek_v32", kUnimplemented, "\"deepseek_v32\" is not supported: it needs sparse attention"},
      {"model_type", "glm4_moe_lite", kUnimplemented, "\"glm4_moe_lite\""},
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
      {"torch_dtype", "float64", kUnimplemented, "\"float64\""},
      {"dtype", "float64", kUnimplemented, "\"float64\""},
      {"rope_scaling", "yarn", kInvalid, "not an object"},
      {"quantization_config", "fp8", kInvalid, "not an object"},
  };
  ExpectRejected(TinyConfig(), cases);
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
      {"truncate", 1, kInvalid, "truncate: 1 is not"},
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
  const json fp8 = Published("deepseek-v3")["quantization_config"];
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
  ExpectRejected(Published("qwen3-235b"), cases);
  json config = Published("qwen3-235b");
  config.erase("head_dim");
  config["num_attention_heads"] = 60;
  ExpectError(Parse(config).status(), kInvalid, {"config.json: head_dim", "does not divide hidden_size"});
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
    json config = Published("dbrx");
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
  ExpectRejected(Published("qwen2-57b"), cases);
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
  ExpectRejected(Published("mixtral-8x7b"), cases);
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
    json config = Published("llama-3.2-3b");
    config[json::json_pointer(rejection.field)] = rejection.value;
    SCOPED_TRACE(rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: ", rejection.part});
  }
  json config = Published("qwen3-235b");
  config["rope_scaling"] = Published("llama-3.2-3b")["rope_scaling"];
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
  ExpectRejected(Published("glm-4.5-air"), cases);
}

TEST(ModelSpecReject, GptOssFields) {
  const std::vector<Rejection> cases = {
      {"layer_types", json::array({"full_attention"}), kUnimplemented, "for each of the 24 layers"},
      {"layer_types", "sliding_attention", kUnimplemented, "for each of the 24 layers"},
      {"layer_types", json(24, "chunked_attention"), kUnimplemented, "only \"sliding_attention\" or"},
      {"sliding_window", nullptr, kInvalid, "missing"},
      {"sliding_window", 0, kInvalid, "0 is out of range"},
      {"num_hidden_layers", 200, kUnimplemented, "for each of the 200 layers"},
      {"swiglu_limit", -7, kInvalid, "-7 is out of range"},
      {"swiglu_limit", 0, kInvalid, "0 is out of range"},
      {"swiglu_alpha", 0, kInvalid, "0 is out of range"},
      {"num_experts_per_tok", 33, kInvalid, "33 is more than num_local_experts = 32"},
      {"head_dim", 45, kUnimplemented, "45 is not a multiple of 64"},
      {"hidden_act", "gelu", kUnimplemented, "\"gelu\""},
  };
  for (const Rejection& rejection : cases) {
    json config = Published("gpt-oss-20b");
    config[rejection.field] = rejection.value;
    SCOPED_TRACE(rejection.field + ": " + rejection.part);
    ExpectError(Parse(config).status(), rejection.code, {"config.json: ", rejection.part});
  }
  json config = Published("gpt-oss-20b");
  config.erase("layer_types");
  config["num_hidden_layers"] = 200;
  ExpectError(Parse(config).status(), kUnimplemented, {"layer_types: a window in layer 128 is not supported"});
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
  ExpectRejected(Published("minimax-m2"), cases);
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
  ExpectRejected(Published("deepseek-v2"), cases);
  json config = Published("deepseek-v2");
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
