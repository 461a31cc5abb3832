#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {
namespace {

void ReadDeepSeekAttention(text::JsonFields& config, weights::ModelSpec* spec) {
  // Null or 0: queries come straight from the hidden state.
  const auto rank = config.object().find("q_lora_rank");
  const bool has_rank = rank == config.object().end() || !rank->is_null();
  spec->q_lora_rank = has_rank ? config.Int("q_lora_rank", 0, kMaxRank) : 0;
  spec->kv_lora_rank = config.Int("kv_lora_rank", 1, kMaxRank);
  spec->qk_nope_head_dim = config.Int("qk_nope_head_dim", 1, kMaxHeadDim);
  spec->qk_rope_head_dim = config.Int("qk_rope_head_dim", 1, kMaxHeadDim);
  spec->v_head_dim = config.Int("v_head_dim", 1, kMaxHeadDim);
  // The reference implementation builds the q_a and kv_a norms without passing rms_norm_eps on.
  spec->lora_norm_eps = 1e-6;
}

void ReadMlps(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->intermediate_size = config.Int("intermediate_size", 1, kMaxIntermediate);
  spec->moe_intermediate_size = config.Int("moe_intermediate_size", 1, kMaxIntermediate);
  spec->num_experts = config.Int("n_routed_experts", 1, kMaxExperts);
  spec->num_shared_experts = config.IntOr("n_shared_experts", 0, 0, kMaxSharedExperts);
  spec->first_dense_layers = config.Int("first_k_dense_replace", 0, kMaxLayers);
}

void ReadGroups(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->num_expert_groups = config.Int("n_group", 1, kMaxExperts);
  spec->experts_topk_groups = config.Int("topk_group", 1, kMaxExperts);
}

// Scores with biases. A config may leave out what has no alternative.
void ReadSigmoidRouter(text::JsonFields& config, weights::ModelSpec* spec) {
  config.OneOf("scoring_func", {"sigmoid"});
  config.OneOf("topk_method", {"noaux_tc"});
  ReadGroups(config, spec);
  spec->norm_topk_prob = config.BoolOr("norm_topk_prob", true) ? 1 : 0;
  spec->routed_scaling_factor = config.Number("routed_scaling_factor", 1e-6, 1e6);
}

// The family's implementations disagree about weights that are both normalised and scaled.
void ReadSoftmaxRouter(text::JsonFields& config, weights::ModelSpec* spec) {
  config.OneOf("scoring_func", {"softmax"});
  config.OneOf("topk_method", {"greedy", "group_limited_greedy"});
  config.OnlyBool("norm_topk_prob", false);
  spec->softmax_router = 1;
  spec->norm_topk_prob = 0;
  spec->routed_scaling_factor = config.NumberOr("routed_scaling_factor", 1, 1e-6, 1e6);
  if (config.StringOr("topk_method", "greedy") == "greedy") return;  // groups, if given, have no effect
  ReadGroups(config, spec);
  spec->largest_of_group = 1;
}

// Choices that these families have always made alike; a config may leave them out.
void CheckDeepSeekChoices(text::JsonFields& config) {
  config.OnlyBool("rope_interleave", true);
  if (config.IntOr("moe_layer_freq", 1, 0, kMaxLayers) != 1)
    config.Unsupported("moe_layer_freq", "only 1 is supported");
}

void CheckAttentionShape(text::JsonFields& config, const weights::ModelSpec& spec) {
  CheckMultiple(config, "qk_nope_head_dim", spec.qk_nope_head_dim, 64);
  CheckMultiple(config, "v_head_dim", spec.v_head_dim, 64);
  CheckMultiple(config, "kv_lora_rank", spec.kv_lora_rank, 64);
  CheckMultiple(config, "qk_rope_head_dim", spec.qk_rope_head_dim, 2);
}

void CheckExpertGroups(text::JsonFields& config, const weights::ModelSpec& spec) {
  const int64_t groups = spec.num_expert_groups;
  if (spec.first_dense_layers > spec.num_layers) {
    config.Fail("first_k_dense_replace",
                absl::StrCat(spec.first_dense_layers, " is more than num_hidden_layers = ", spec.num_layers));
  }
  if (spec.num_experts % groups != 0) {
    config.Fail("n_group", absl::StrCat(groups, " does not divide n_routed_experts = ", spec.num_experts));
  }
  if (spec.experts_topk_groups > groups) {
    config.Fail("topk_group", absl::StrCat(spec.experts_topk_groups, " is more than n_group = ", groups));
  }
  const int64_t group_size = spec.num_experts / groups;
  if (groups > 1 && group_size < 2 && spec.largest_of_group == 0) {  // a group's score is the sum of its two best
    config.Fail("n_group", absl::StrCat(groups, " groups leave fewer than 2 experts in a group"));
  }
  if (spec.experts_per_token > spec.experts_topk_groups * group_size) {
    config.Fail("num_experts_per_tok",
                absl::StrCat(spec.experts_per_token, " is more than the ", spec.experts_topk_groups * group_size,
                             " experts in topk_group groups"));
  }
  if (std::string_view(spec.family) == "kimi_k2" && groups != 1) {
    config.Unsupported("n_group", absl::StrCat(groups, " is not supported for kimi_k2, only 1"));
  }
}

}  // namespace

void ReadSigmoidExperts(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadMlps(config, spec);
  ReadSigmoidRouter(config, spec);
  CheckExpertCounts(config, "n_routed_experts", *spec);
  CheckExpertGroups(config, *spec);
}

void ReadDeepSeek(text::JsonFields& config, weights::ModelSpec* spec) {
  CheckDeepSeekChoices(config);
  ReadDeepSeekAttention(config, spec);
  CheckAttentionShape(config, *spec);
  if (std::string_view(spec->family) != "deepseek_v2") return ReadSigmoidExperts(config, spec);
  ReadMlps(config, spec);
  ReadSoftmaxRouter(config, spec);
  CheckExpertCounts(config, "n_routed_experts", *spec);
  CheckExpertGroups(config, *spec);
}

}  // namespace moestro::checkpoint
