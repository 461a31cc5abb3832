#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {
namespace {

// What ModelSpec::dense_layers can say.
constexpr int64_t kMixedLayers = 128;

// Numbers of layers; some may lie past the last.
std::vector<int64_t> LayerList(text::JsonFields& config, const char* key) {
  if (!config.Has(key)) return {};
  const nlohmann::json& list = config.object()[key];
  const auto is_layer = [](const nlohmann::json& layer) { return layer.is_number_unsigned(); };
  if (!list.is_array() || !std::ranges::all_of(list, is_layer)) {
    config.Fail(key, "is not a list of layers, numbered from 0");
    return {};
  }
  return list.get<std::vector<int64_t>>();
}

// Only every decoder_sparse_step-th layer has experts, and none of mlp_only_layers.
void ReadDenseLayers(text::JsonFields& config, weights::ModelSpec* spec) {
  const int64_t step = config.IntOr("decoder_sparse_step", 1, 1, kMaxLayers);
  std::vector<bool> dense(static_cast<size_t>(spec->num_layers));
  for (size_t layer = 0; layer < dense.size(); ++layer) dense[layer] = (static_cast<int64_t>(layer) + 1) % step != 0;
  for (const int64_t layer : LayerList(config, "mlp_only_layers")) {
    if (layer >= 0 && layer < spec->num_layers) dense[static_cast<size_t>(layer)] = true;
  }
  spec->first_dense_layers = std::ranges::find(dense, false) - dense.begin();
  for (int64_t layer = spec->first_dense_layers; layer < spec->num_layers; ++layer) {
    if (!dense[static_cast<size_t>(layer)]) continue;
    if (layer >= kMixedLayers) {
      return config.Unsupported(step > 1 ? "decoder_sparse_step" : "mlp_only_layers",
                                absl::StrCat("layer ", layer, " is dense after one with experts; only the first ",
                                             kMixedLayers, " layers can be"));
    }
    spec->dense_layers[layer / 64] |= uint64_t{1} << (layer % 64);
  }
  if (spec->num_moe_layers() == spec->num_layers) return;
  spec->intermediate_size = config.Int("intermediate_size", 1, kMaxIntermediate);
}

void ReadQwenExperts(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->moe_intermediate_size = config.Int("moe_intermediate_size", 1, kMaxIntermediate);
  spec->num_experts = config.Int("num_experts", 1, kMaxExperts);
  spec->softmax_router = 1;
  // The family's implementations take a config without the field for false.
  spec->norm_topk_prob = config.BoolOr("norm_topk_prob", false) ? 1 : 0;
  ReadDenseLayers(config, spec);
}

// What Qwen2-MoE and Qwen3-MoE have in common.
void ReadQwen(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadGroupedQueries(config, spec);
  config.OnlyBool("use_sliding_window", false);
  ReadQwenExperts(config, spec);
  CheckExpertCounts(config, "num_experts", *spec);
}

}  // namespace

void ReadQwen2Moe(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadQwen(config, spec);
  spec->heads_without_norms = 1;
  spec->qkv_biases = config.BoolOr("qkv_bias", true) ? 1 : 0;
  spec->num_shared_experts = 1;
  spec->shared_expert_width = config.Int("shared_expert_intermediate_size", 1, kMaxIntermediate);
  spec->shared_expert_gate = 1;
}

void ReadQwen3Moe(text::JsonFields& config, weights::ModelSpec* spec) { ReadQwen(config, spec); }

}  // namespace moestro::checkpoint
