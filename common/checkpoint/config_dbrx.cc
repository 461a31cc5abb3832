#include "absl/strings/str_cat.h"
#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {
namespace {

// What DBRX's implementation does and its config does not say.
constexpr double kLayerNormEps = 1e-5;

void ReadDbrxAttention(text::JsonFields& config, weights::ModelSpec* spec) {
  text::JsonFields attention = config.Sub("attn_config");
  spec->num_kv_heads = attention.Int("kv_n_heads", 1, kMaxHeads);
  if (spec->num_heads % spec->num_kv_heads != 0) {
    attention.Fail("kv_n_heads", absl::StrCat(spec->num_kv_heads, " does not divide n_heads = ", spec->num_heads));
  }
  if (spec->hidden_size % spec->num_heads != 0) {
    config.Fail("n_heads", absl::StrCat(spec->num_heads, " does not divide d_model = ", spec->hidden_size));
  }
  spec->v_head_dim = spec->qk_rope_head_dim = spec->hidden_size / spec->num_heads;
  CheckMultiple(config, "d_model", spec->hidden_size, 64 * spec->num_heads);
  spec->heads_without_norms = 1;
  spec->clip_qkv = attention.NumberOr("clip_qkv", 0, 1e-3, 1e6);
  // As saved by newer tools, beside attn_config. They compute with it, and keep the other.
  text::JsonFields rope = config.Sub("rope_parameters");
  rope.OneOf("rope_type", {"default"});
  spec->rope_theta = (rope.Has("rope_theta") ? rope : attention).Number("rope_theta", 1.001, 1e15);
  if (const double theta = attention.NumberOr("rope_theta", spec->rope_theta, 1.001, 1e15); theta != spec->rope_theta) {
    attention.Fail("rope_theta", absl::StrCat(theta, " contradicts rope_parameters: rope_theta = ", spec->rope_theta,
                                              "; keep the right one"));
  }
}

void ReadDbrxExperts(text::JsonFields& config, weights::ModelSpec* spec) {
  text::JsonFields experts = config.Sub("ffn_config");
  experts.Sub("ffn_act_fn").OneOf("name", {"silu"});
  spec->moe_intermediate_size = experts.Int("ffn_hidden_size", 1, kMaxIntermediate);
  spec->num_experts = experts.Int("moe_num_experts", 1, kMaxExperts);
  spec->experts_per_token = experts.Int("moe_top_k", 1, kMaxExperts);
  spec->softmax_router = 1;
  // The norm by which weights of experts are divided: they add up to one. Null: they are taken as they are.
  const auto norm = experts.object().find("moe_normalize_expert_weights");
  spec->norm_topk_prob = norm == experts.object().end() || !norm->is_null() ? 1 : 0;
  if (experts.NumberOr("moe_normalize_expert_weights", 1, 0, 1e6) != 1) {
    experts.Unsupported("moe_normalize_expert_weights", "only 1 and null are supported");
  }
  CheckExpertCounts(experts, "moe_num_experts", *spec, "moe_top_k");
}

}  // namespace

void ReadDbrx(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->hidden_size = config.Int("d_model", 1, kMaxHidden);
  spec->num_layers = config.Int("n_layers", 1, kMaxLayers);
  spec->num_heads = config.Int("n_heads", 1, kMaxHeads);
  spec->vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  spec->max_position_embeddings = config.Int("max_seq_len", 1, kMaxPositions);
  spec->layer_norms = 1;
  spec->rms_norm_eps = kLayerNormEps;
  config.OnlyBool("tie_word_embeddings", false);
  ReadDbrxAttention(config, spec);
  ReadDbrxExperts(config, spec);
}

}  // namespace moestro::checkpoint
