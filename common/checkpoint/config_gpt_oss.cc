#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr char kSliding[] = "sliding_attention";
constexpr int64_t kMaxWindowedLayers = 128;  // layers that ModelSpec::windowed_layers has

// A config without layer_types has a window in every other layer, the first included.
bool IsSliding(text::JsonFields& config, int64_t layer) {
  if (!config.Has("layer_types")) return layer % 2 == 0;
  return config.object()["layer_types"][static_cast<size_t>(layer)] == kSliding;
}

bool AreLayerTypes(const json& types, int64_t layers) {
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) return false;
  return std::ranges::all_of(types, [](const json& type) { return type == kSliding || type == "full_attention"; });
}

void ReadWindows(text::JsonFields& config, weights::ModelSpec* spec) {
  if (config.Has("layer_types") && !AreLayerTypes(config.object()["layer_types"], spec->num_layers)) {
    config.Unsupported("layer_types", absl::StrCat("only \"sliding_attention\" or \"full_attention\" for each of the ",
                                                   spec->num_layers, " layers is supported"));
    return;
  }
  bool has_windows = false;
  for (int64_t layer = 0; layer < spec->num_layers; ++layer) {
    if (!IsSliding(config, layer)) continue;
    has_windows = true;
    if (layer >= kMaxWindowedLayers) {
      return config.Unsupported(
          "layer_types",
          absl::StrCat("a window in layer ", layer, " is not supported, only in the first ", kMaxWindowedLayers));
    }
    spec->windowed_layers[layer / 64] |= uint64_t{1} << (layer % 64);
  }
  if (has_windows) spec->sliding_window = config.Int("sliding_window", 1, kMaxPositions);
}

void ReadGptOssExperts(text::JsonFields& config, weights::ModelSpec* spec) {
  spec->moe_intermediate_size = config.Int("intermediate_size", 1, kMaxIntermediate);
  spec->num_experts = config.Int("num_local_experts", 1, kMaxExperts);
  // The softmax over the chosen logits is that over all, divided by the sum of the chosen.
  spec->softmax_router = 1;
  spec->norm_topk_prob = 1;
  spec->router_bias = 1;
  spec->expert_biases = 1;
  spec->swiglu_limit = config.NumberOr("swiglu_limit", 7, 1e-3, 1e6);
  spec->swiglu_alpha = config.NumberOr("swiglu_alpha", 1.702, 1e-3, 1e3);
}

}  // namespace

// gpt-oss: grouped queries with sinks, in every other layer within a window, and experts with biases and a clamp.
void ReadGptOss(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadGroupedQueries(config, spec);
  spec->heads_without_norms = 1;
  spec->attention_sinks = 1;
  spec->qkv_biases = spec->output_bias = config.BoolOr("attention_bias", true) ? 1 : 0;
  ReadWindows(config, spec);
  ReadGptOssExperts(config, spec);
  CheckExpertCounts(config, "num_local_experts", *spec);
}

}  // namespace moestro::checkpoint
