#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {
namespace {

void ReadExperts(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->moe_intermediate_size = config.Int("moe_intermediate_size", 1, kMaxIntermediate);
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

void ReadQwen3Moe(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadGroupedQueries(config, spec);
  config.OnlyBool("use_sliding_window", false);
  ReadExperts(config, spec);
  CheckExpertCounts(config, "num_experts", *spec);
}

}  // namespace moestro::checkpoint
