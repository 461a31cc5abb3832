#include "loadtest/bench/presets.h"

#include <algorithm>

#include "common/checkpoint/config.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::bench {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// The largest matrix of whole row groups, with `inputs` columns, that leaves half of the L2 cache for other data.
Shape CacheShape(int64_t l2_bytes, int64_t inputs) {
  const int64_t groups = l2_bytes / 2 / (inputs * kRowGroup);
  return {kRowGroup * std::max<int64_t>(1, groups), inputs};
}

// DeepSeek-V3 except for the number of layers, and embedding and head rows in proportion to that.
weights::ModelSpec LayerSpec() {
  const weights::ModelSpec published = checkpoint::PublishedModel("deepseek-v3");
  weights::ModelSpec spec = published;
  spec.num_layers = 3;
  spec.first_dense_layers = 1;
  spec.vocab_size = PaddedRows(published.vocab_size * spec.num_layers / published.num_layers);
  spec.token_count = spec.vocab_size;
  return spec;
}

weights::ModelSpec TinySpec() {
  weights::ModelSpec spec = LayerSpec();
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
  const weights::ModelSpec model = checkpoint::PublishedModel("deepseek-v3");
  const int64_t hidden = model.hidden_size, width = model.moe_intermediate_size;
  Preset preset;
  preset.name = "layer";
  // At four times the caches, nothing of a matrix is still cached when the walk returns to it.
  preset.pool_bytes = std::max(2 * kGiB, (4 * l3_bytes + kGiB - 1) / kGiB * kGiB);
  preset.gemv = {{width, hidden}, {hidden, width}, {model.intermediate_size, hidden}, {model.q_lora_rank, hidden}};
  preset.cache = CacheShape(l2_bytes, hidden);
  preset.table = {width, hidden};
  preset.library_settle = std::chrono::milliseconds(20);
  preset.gemm = {width, hidden};
  preset.gemm_tokens = {{64, 0.86}, {128, 0.91}, {256, 0.94}};
  preset.attention_tokens = 32768;
  const weights::ModelSpec batch = checkpoint::PublishedModel("mixtral-8x7b");
  preset.batch = {.micro_batches = {32, 64, 128, 256},
                  .contexts = {128, 256, 512, 1024, 2048},
                  .expert = {batch.moe_intermediate_size, batch.hidden_size}};
  preset.moe = {.hidden = hidden,
                .width = width,
                .experts = model.num_experts,
                .experts_per_token = model.experts_per_token,
                .decode = {{1, 0.94}, {2, 0}, {4, 0}, {6, 0}},
                .prefill = {{128, 0.7}, {512, 0}, {2048, 0}}};
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
  preset.batch = {.micro_batches = {4}, .contexts = {64}, .expert = {128, 256}};
  preset.moe = {.hidden = 256,
                .width = 128,
                .experts = 16,
                .experts_per_token = 4,
                .decode = {{1, 0.94}, {2, 0}},
                .prefill = {{16, 0.7}}};
  preset.model = {.spec = TinySpec(), .memory_bytes = int64_t{64} << 20, .prefill_tokens = 16, .decode_context = 8};
  return preset;
}

}  // namespace moestro::bench
