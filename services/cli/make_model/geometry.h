// The shape of a model of the DeepSeek-V3 or the Qwen3-MoE type, resolved from a preset and its overrides.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/cli/make_model/make_model.h"

namespace moestro {

struct Geometry {
  int64_t hidden = 0;
  int64_t layers = 0;        // without the multi-token-prediction layer
  int64_t dense_layers = 0;  // layers below this index have a dense MLP
  int64_t mtp_layers = 0;    // 0 or 1, at layer index `layers`
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: DeepSeek-V3; otherwise Qwen3-MoE, which has none of the ranks and v_head_dim alone
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 512;
  int64_t qk_nope_head_dim = 128;
  int64_t qk_rope_head_dim = 64;
  int64_t v_head_dim = 128;
  int64_t intermediate = 0;      // dense MLP
  int64_t moe_intermediate = 0;  // one expert; also DeepSeek-V3's shared expert
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t groups = 0;       // divides experts, at least two experts each
  int64_t topk_groups = 0;  // topk_groups * experts / groups >= experts_per_token
  int64_t vocab_rows = 0;
  int64_t shard_bytes = 0;
  bool fp8 = true;

  int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

// INVALID_ARGUMENT, naming the flag, for an unknown preset or weight type and for numbers out of range.
absl::StatusOr<Geometry> ResolveGeometry(const MakeModelOptions& options);

}  // namespace moestro
