#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {

// GLM-4.5, 4.5-Air and 4.6: grouped queries that rotate in part, and DeepSeek-V3's router. A config without
// attention_bias or use_qk_norm has neither, and half a head rotates if it does not say how much.
void ReadGlm4Moe(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadGroupedQueries(config, spec);
  spec->qkv_biases = config.BoolOr("attention_bias", false) ? 1 : 0;
  spec->heads_without_norms = config.BoolOr("use_qk_norm", false) ? 0 : 1;
  const double rotated = static_cast<double>(spec->v_head_dim) * PartialRotaryFactor(config, 0.5);
  SetRotaryDims(config, "partial_rotary_factor", rotated, spec);
  ReadSigmoidExperts(config, spec);
}

}  // namespace moestro::checkpoint
