#include "services/cli/published_models.h"

#include <cstring>

#include "common/base/check.h"

namespace moestro {
namespace {

ModelSpec DeepSeekV3() {
  ModelSpec spec;
  std::strcpy(spec.family, "deepseek_v3");
  spec.hidden_size = 7168;
  spec.num_layers = 61;
  spec.first_dense_layers = 3;
  spec.num_heads = 128;
  spec.q_lora_rank = 1536;
  spec.kv_lora_rank = 512;
  spec.qk_nope_head_dim = 128;
  spec.qk_rope_head_dim = 64;
  spec.v_head_dim = 128;
  spec.intermediate_size = 18432;
  spec.moe_intermediate_size = 2048;
  spec.num_experts = 256;
  spec.experts_per_token = 8;
  spec.num_shared_experts = 1;
  spec.num_expert_groups = 8;
  spec.experts_topk_groups = 4;
  spec.vocab_size = 129280;
  spec.token_count = 129280;
  spec.max_position_embeddings = 163840;
  spec.routed_scaling_factor = 2.5;
  spec.yarn = {.factor = 40, .mscale = 1, .mscale_all_dim = 1, .original_max_position_embeddings = 4096, .enabled = 1};
  return spec;
}

ModelSpec KimiK2() {
  ModelSpec spec = DeepSeekV3();
  std::strcpy(spec.family, "kimi_k2");
  spec.first_dense_layers = 1;
  spec.num_heads = 64;
  spec.num_experts = 384;
  spec.num_expert_groups = 1;
  spec.experts_topk_groups = 1;
  spec.vocab_size = 163840;
  spec.token_count = 163840;
  spec.max_position_embeddings = 131072;
  spec.rope_theta = 50000;
  spec.routed_scaling_factor = 2.827;
  spec.yarn.factor = 32;
  spec.yarn.beta_fast = 1;
  return spec;
}

ModelSpec Qwen3With235B() {
  ModelSpec spec;
  std::strcpy(spec.family, "qwen3_moe");
  spec.hidden_size = 4096;
  spec.num_layers = 94;
  spec.num_heads = 64;
  spec.num_kv_heads = 4;
  spec.qk_rope_head_dim = 128;
  spec.v_head_dim = 128;
  spec.moe_intermediate_size = 1536;
  spec.num_experts = 128;
  spec.experts_per_token = 8;
  spec.softmax_router = 1;
  spec.vocab_size = 151936;
  spec.token_count = 151936;
  spec.max_position_embeddings = 40960;
  spec.rope_theta = 1e6;
  return spec;
}

}  // namespace

std::vector<std::string> PublishedModels() { return {"deepseek-v3", "kimi-k2", "qwen3-235b"}; }

ModelSpec PublishedModel(const std::string& name) {
  if (name == "kimi-k2") return KimiK2();
  if (name == "qwen3-235b") return Qwen3With235B();
  MOE_CHECK(name == "deepseek-v3");
  return DeepSeekV3();
}

}  // namespace moestro
