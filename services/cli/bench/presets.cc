#include "services/cli/bench/presets.h"

#include <algorithm>
#include <cstring>

#include "common/tensor/packed_matrix.h"

namespace moestro::bench {
namespace {

constexpr int64_t kHidden = 7168;
constexpr int64_t kExpertWidth = 2048;
constexpr int64_t kGiB = int64_t{1} << 30;

// The largest matrix of whole row groups, kHidden inputs each, that leaves half of the L2 cache for everything else.
Shape CacheShape(int64_t l2_bytes) {
  const int64_t groups = l2_bytes / 2 / (kHidden * kRowGroup);
  return {kRowGroup * std::max<int64_t>(1, groups), kHidden};
}

// DeepSeek-V3 in everything but the number of layers, and rows of embedding and head in proportion to these.
ModelSpec LayerSpec() {
  constexpr int64_t kPublishedLayers = 61;
  constexpr int64_t kPublishedVocabulary = 129280;
  ModelSpec spec;
  std::strcpy(spec.family, "deepseek_v3");
  spec.hidden_size = kHidden;
  spec.num_layers = 3;
  spec.first_dense_layers = 1;
  spec.num_heads = 128;
  spec.q_lora_rank = 1536;
  spec.kv_lora_rank = 512;
  spec.qk_nope_head_dim = 128;
  spec.qk_rope_head_dim = 64;
  spec.v_head_dim = 128;
  spec.intermediate_size = 18432;
  spec.moe_intermediate_size = kExpertWidth;
  spec.num_experts = 256;
  spec.experts_per_token = 8;
  spec.num_shared_experts = 1;
  spec.num_expert_groups = 8;
  spec.experts_topk_groups = 4;
  spec.vocab_size = PaddedRows(kPublishedVocabulary * spec.num_layers / kPublishedLayers);
  spec.token_count = spec.vocab_size;
  spec.max_position_embeddings = 163840;
  spec.routed_scaling_factor = 2.5;
  spec.yarn = {.factor = 40, .mscale = 1, .mscale_all_dim = 1, .original_max_position_embeddings = 4096, .enabled = 1};
  return spec;
}

ModelSpec TinySpec() {
  ModelSpec spec = LayerSpec();
  spec.hidden_size = 256;
  spec.num_layers = 2;
  spec.num_heads = 4;
  spec.q_lora_rank = 128;
  spec.kv_lora_rank = 128;
  spec.intermediate_size = 256;
  spec.moe_intermediate_size = 128;
  spec.num_experts = 16;
  spec.experts_per_token = 4;
  spec.vocab_size = 256;
  spec.token_count = 256;
  return spec;
}

}  // namespace

Preset LayerPreset(int64_t l2_bytes, int64_t l3_bytes) {
  Preset preset;
  preset.name = "layer";
  // At four times the caches, what is left in them from the last walk is long gone when its turn comes again.
  preset.pool_bytes = std::max(2 * kGiB, (4 * l3_bytes + kGiB - 1) / kGiB * kGiB);
  preset.gemv = {{kExpertWidth, kHidden}, {kHidden, kExpertWidth}, {18432, kHidden}, {1536, kHidden}};
  preset.cache = CacheShape(l2_bytes);
  preset.table = {kExpertWidth, kHidden};
  preset.library_settle = std::chrono::milliseconds(20);
  preset.gemm = {kExpertWidth, kHidden};
  preset.gemm_tokens = {{64, 0.86}, {128, 0.91}, {256, 0.94}};
  preset.attention_tokens = 32768;
  preset.moe = {.hidden = kHidden,
                .width = kExpertWidth,
                .experts = 256,
                .experts_per_token = 8,
                .decode = {{1, 0.94}, {2, 0}, {4, 0}, {6, 0}},
                .prefill = {128, 512, 2048}};
  preset.model = {.spec = LayerSpec(), .memory_bytes = 4 * kGiB, .prefill_tokens = 512, .decode_context = 64};
  return preset;
}

Preset QuickPreset() {
  Preset preset;
  preset.name = "quick";
  preset.pool_bytes = int64_t{2} << 20;
  preset.gemv = {{128, 256}, {256, 128}};
  preset.cache = {64, 256};
  preset.table = {128, 256};
  preset.library_settle = std::chrono::milliseconds(0);
  preset.gemm = {128, 256};
  preset.gemm_tokens = {{16, 0.86}};
  preset.attention_tokens = 256;
  preset.moe = {.hidden = 256,
                .width = 128,
                .experts = 16,
                .experts_per_token = 4,
                .decode = {{1, 0.94}, {2, 0}},
                .prefill = {16}};
  preset.model = {.spec = TinySpec(), .memory_bytes = int64_t{64} << 20, .prefill_tokens = 16, .decode_context = 8};
  return preset;
}

}  // namespace moestro::bench
