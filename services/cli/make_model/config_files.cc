#include "services/cli/make_model/config_files.h"

#include "common/tensor/dtype.h"
#include "nlohmann/json.hpp"
#include "services/cli/make_model/special_tokens.h"

namespace moestro {
namespace {

// The transformers release that the published files name.
constexpr char kTransformersVersion[] = "4.33.1";

nlohmann::json DeepSeekConfig(const Geometry& g) {
  return {
      {"architectures", {"DeepseekV3ForCausalLM"}},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"auto_map",
       {{"AutoConfig", "configuration_deepseek.DeepseekV3Config"},
        {"AutoModel", "modeling_deepseek.DeepseekV3Model"},
        {"AutoModelForCausalLM", "modeling_deepseek.DeepseekV3ForCausalLM"}}},
      {"aux_loss_alpha", 0.001},
      {"bos_token_id", kBosId},
      {"eos_token_id", kEosId},
      {"ep_size", 1},
      {"first_k_dense_replace", g.dense_layers},
      {"hidden_act", "silu"},
      {"hidden_size", g.hidden},
      {"initializer_range", 0.02},
      {"intermediate_size", g.intermediate},
      {"kv_lora_rank", g.kv_lora_rank},
      {"max_position_embeddings", 163840},
      {"model_type", "deepseek_v3"},
      {"moe_intermediate_size", g.moe_intermediate},
      {"moe_layer_freq", 1},
      {"n_group", g.groups},
      {"n_routed_experts", g.experts},
      {"n_shared_experts", 1},
      {"norm_topk_prob", true},
      {"num_attention_heads", g.heads},
      {"num_experts_per_tok", g.experts_per_token},
      {"num_hidden_layers", g.layers},
      {"num_key_value_heads", g.heads},
      {"num_nextn_predict_layers", g.mtp_layers},
      {"pretraining_tp", 1},
      {"q_lora_rank", g.q_lora_rank},
      {"qk_nope_head_dim", g.qk_nope_head_dim},
      {"qk_rope_head_dim", g.qk_rope_head_dim},
      {"rms_norm_eps", 1e-06},
      {"rope_scaling",
       {{"beta_fast", 32},
        {"beta_slow", 1},
        {"factor", 40},
        {"mscale", 1.0},
        {"mscale_all_dim", 1.0},
        {"original_max_position_embeddings", 4096},
        {"type", "yarn"}}},
      {"rope_theta", 10000},
      {"routed_scaling_factor", 2.5},
      {"scoring_func", "sigmoid"},
      {"seq_aux", true},
      {"tie_word_embeddings", false},
      {"topk_group", g.topk_groups},
      {"topk_method", "noaux_tc"},
      {"torch_dtype", "bfloat16"},
      {"transformers_version", kTransformersVersion},
      {"use_cache", true},
      {"v_head_dim", g.v_head_dim},
      {"vocab_size", g.vocab_rows},
  };
}

nlohmann::json Qwen3Config(const Geometry& g) {
  return {
      {"architectures", {"Qwen3MoeForCausalLM"}},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"bos_token_id", kBosId},
      {"decoder_sparse_step", 1},
      {"eos_token_id", kEosId},
      {"head_dim", g.v_head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", g.hidden},
      {"initializer_range", 0.02},
      {"intermediate_size", 3 * g.moe_intermediate},
      {"max_position_embeddings", 40960},
      {"max_window_layers", g.layers},
      {"mlp_only_layers", nlohmann::json::array()},
      {"model_type", "qwen3_moe"},
      {"moe_intermediate_size", g.moe_intermediate},
      {"norm_topk_prob", true},
      {"num_attention_heads", g.heads},
      {"num_experts", g.experts},
      {"num_experts_per_tok", g.experts_per_token},
      {"num_hidden_layers", g.layers},
      {"num_key_value_heads", g.kv_heads},
      {"output_router_logits", false},
      {"rms_norm_eps", 1e-06},
      {"rope_scaling", nullptr},
      {"rope_theta", 1000000.0},
      {"router_aux_loss_coef", 0.001},
      {"sliding_window", nullptr},
      {"tie_word_embeddings", false},
      {"torch_dtype", "bfloat16"},
      {"transformers_version", "4.51.0"},
      {"use_cache", true},
      {"use_sliding_window", false},
      {"vocab_size", g.vocab_rows},
  };
}

}  // namespace

std::string ConfigJson(const Geometry& g) {
  nlohmann::json json = g.kv_heads > 0 ? Qwen3Config(g) : DeepSeekConfig(g);
  if (g.fp8) {
    json["quantization_config"] = {{"activation_scheme", "dynamic"},
                                   {"fmt", "e4m3"},
                                   {"quant_method", "fp8"},
                                   {"weight_block_size", {kScaleBlock, kScaleBlock}}};
  }
  return json.dump(2) + "\n";
}

std::string GenerationConfigJson() {
  const nlohmann::json json = {
      {"_from_model_config", true},
      {"bos_token_id", kBosId},
      {"eos_token_id", kEosId},
      {"do_sample", true},
      {"temperature", 0.6},
      {"top_p", 0.95},
      {"transformers_version", kTransformersVersion},
  };
  return json.dump(2) + "\n";
}

}  // namespace moestro
