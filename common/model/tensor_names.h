// Names of the tensors of a published checkpoint, which the weight segment keeps.
#pragma once

#include <cstdint>
#include <string>

namespace moestro {

inline constexpr const char kEmbeddingName[] = "model.embed_tokens.weight";
inline constexpr const char kFinalNormName[] = "model.norm.weight";
inline constexpr const char kHeadName[] = "lm_head.weight";

// model.layers.<layer>.<suffix>
inline std::string LayerTensorName(int64_t layer, const std::string& suffix) {
  return "model.layers." + std::to_string(layer) + "." + suffix;
}
// model.layers.<layer>.mlp.experts.<expert>.<projection>.weight
inline std::string ExpertTensorName(int64_t layer, int64_t expert, const std::string& projection) {
  return LayerTensorName(layer, "mlp.experts." + std::to_string(expert) + "." + projection + ".weight");
}

// The only tensor of the segment that is not in the checkpoint: the key half of kv_b_proj, transposed per head, for the
// absorbed form of MLA: [heads * kv_lora_rank, qk_nope_head_dim], packed, scales transposed with it.
inline constexpr const char kKeyUpTransposedSuffix[] = "self_attn.kv_b_proj.key_transposed";

}  // namespace moestro
