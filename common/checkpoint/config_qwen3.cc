#include "absl/strings/str_cat.h"
#include "common/checkpoint/config_families.h"

namespace moestro {
namespace {

// A head that is not given is an even part of the hidden size.
int64_t HeadDim(JsonFields& config, const ModelSpec& spec) {
  if (config.Has("head_dim")) return config.Int("head_dim", 1, kMaxHeadDim);
  if (spec.hidden_size % spec.num_heads != 0) {
    config.Fail("head_dim", absl::StrCat("missing, and num_attention_heads = ", spec.num_heads,
                                         " does not divide hidden_size = ", spec.hidden_size));
  }
  return spec.hidden_size / spec.num_heads;
}

void ReadAttention(JsonFields& config, ModelSpec* spec) {
  spec->num_kv_heads = config.IntOr("num_key_value_heads", spec->num_heads, 1, kMaxHeads);
  if (spec->num_heads % spec->num_kv_heads != 0) {
    config.Fail("num_key_value_heads",
                absl::StrCat(spec->num_kv_heads, " does not divide num_attention_heads = ", spec->num_heads));
  }
  spec->v_head_dim = HeadDim(config, *spec);
  CheckMultiple(config, "head_dim", spec->v_head_dim, 64);
  spec->qk_rope_head_dim = spec->v_head_dim;
  config.OnlyBool("use_sliding_window", false);
}

void ReadExperts(JsonFields& config, ModelSpec* spec) {
  spec->num_experts = config.Int("num_experts", 1, kMaxExperts);
  spec->softmax_router = 1;
  // The family's implementations take a config without the field for false.
  spec->norm_topk_prob = config.BoolOr("norm_topk_prob", false) ? 1 : 0;
  if (config.IntOr("decoder_sparse_step", 1, 0, kMaxLayers) != 1) {
    config.Unsupported("decoder_sparse_step", "only 1 is supported: every layer has experts");
  }
  const auto dense = config.object().find("mlp_only_layers");
  if (dense != config.object().end() && !dense->is_null() && *dense != nlohmann::json::array()) {
    config.Unsupported("mlp_only_layers", "only an empty list is supported: every layer has experts");
  }
}

}  // namespace

void ReadQwen3Moe(JsonFields& config, ModelSpec* spec) {
  ReadAttention(config, spec);
  ReadExperts(config, spec);
  CheckExpertCounts(config, "num_experts", *spec);
}

}  // namespace moestro
