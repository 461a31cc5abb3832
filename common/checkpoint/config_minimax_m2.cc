#include <algorithm>

#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {
namespace {

// Choices that the family has always made alike; a config may leave them out.
void CheckMiniMaxChoices(text::JsonFields& config) {
  config.OneOf("scoring_func", {"sigmoid"});
  config.OnlyBool("use_routing_bias", true);
  config.OnlyBool("use_qk_norm", true);
  config.OneOf("qk_norm_type", {"per_layer"});  // over all heads of a layer
  if (config.IntOr("shared_intermediate_size", 0, 0, kMaxIntermediate) != 0) {
    config.Unsupported("shared_intermediate_size", "only 0 is supported: the family has no shared experts");
  }
  // Each layer's attention: 1 is over all positions, anything else is linear.
  const auto kinds = config.object().find("attn_type_list");
  if (kinds == config.object().end() || kinds->is_null()) return;
  if (!kinds->is_array() || !std::ranges::all_of(*kinds, [](const auto& kind) { return kind == 1; })) {
    config.Unsupported("attn_type_list", "only a list of 1 is supported: full attention in every layer");
  }
}

void ReadRotation(text::JsonFields& config, weights::ModelSpec* spec) {
  constexpr char kDims[] = "rotary_dim";
  if (config.Has(kDims)) {
    SetRotaryDims(config, kDims, static_cast<double>(config.Int(kDims, 1, kMaxHeadDim)), spec);
  } else {
    const double rotated = static_cast<double>(spec->v_head_dim) * PartialRotaryFactor(config, 1);
    SetRotaryDims(config, "partial_rotary_factor", rotated, spec);
  }
}

void ReadMiniMaxExperts(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->moe_intermediate_size = config.Int("intermediate_size", 1, kMaxIntermediate);
  spec->num_experts = config.Int("num_local_experts", 1, kMaxExperts);
  spec->norm_topk_prob = 1;
  spec->routed_scaling_factor = config.NumberOr("routed_scaling_factor", 1, 1e-6, 1e6);
}

}  // namespace

void ReadMiniMaxM2(text::JsonFields& config, weights::ModelSpec* spec) {
  CheckMiniMaxChoices(config);
  ReadGroupedQueries(config, spec);
  spec->norms_of_all_heads = 1;
  ReadRotation(config, spec);
  ReadMiniMaxExperts(config, spec);
  CheckExpertCounts(config, "num_local_experts", *spec);
}

}  // namespace moestro::checkpoint
