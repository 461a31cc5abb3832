#include <algorithm>

#include "common/model/attention.h"
#include "common/model/rope.h"

namespace moestro {
namespace {

// One head's keys [key_up latent ; rotated key] and values value_up latent of a KV block, in the worker's scratch.
KvBlock ExpandBlock(EngineContext& context, const AttentionWeights& weights, const uint16_t* cached, int64_t head,
                    int64_t tokens, WorkerScratch& scratch) {
  const ModelSpec& spec = context.spec;
  const int64_t nope = spec.qk_nope_head_dim;
  const int64_t width = nope + spec.v_head_dim;
  const int64_t first = head * width;  // the kernel indexes its output by the row of the weights
  context.kernels.linear(weights.kv_b, cached, spec.kv_dim(), tokens, scratch.head.get() - first, width, first,
                         first + width);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* expanded = scratch.head.get() + t * width;
    uint16_t* key = scratch.keys.get() + t * spec.qk_head_dim();
    context.kernels.to_bf16(expanded, nope, key);
    std::copy_n(cached + t * spec.kv_dim() + spec.kv_lora_rank, spec.qk_rope_head_dim, key + nope);
    context.kernels.to_bf16(expanded + nope, spec.v_head_dim, scratch.values.get() + t * spec.v_head_dim);
  }
  return {.keys = scratch.keys.get(),
          .key_stride = spec.qk_head_dim(),
          .values = scratch.values.get(),
          .value_stride = spec.v_head_dim};
}

// The layer's blocks of the batch's sequences, expanded.
auto ExpandedBlocks(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch) {
  return [&context, &weights, layer, &batch](const FlashAttention::BlockRequest& request) {
    const uint16_t* cached = batch.pages(batch.runs[request.run].begin).Block(layer, request.block);
    return ExpandBlock(context, weights, cached, request.kv_heads.begin, request.tokens,
                       context.activations.workers[request.worker]);
  };
}

}  // namespace

// queries[head, row] = [q_nope ; rotated q_rope]
void NarrowQueries(EngineContext& context, int64_t rows) {
  const ModelSpec& spec = context.spec;
  const Activations& a = context.activations;
  context.pool.Run(rows, [&](int64_t row, int) {
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      float* query = a.q.get() + (row * spec.num_heads + head) * spec.qk_head_dim();
      RotateQuery(context, row, query + spec.qk_nope_head_dim);
      context.kernels.to_bf16(query, spec.qk_head_dim(), a.queries.get() + (head * rows + row) * spec.qk_head_dim());
    }
  });
}

void AttendUnabsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer,
                      const CheckedBatch& batch) {
  NarrowQueries(context, batch.size());
  Activations& a = context.activations;
  context.head_attention.Run(QueryRunsOf(batch), a.queries.get(), ExpandedBlocks(context, weights, layer, batch),
                             a.attended.get(), AttendedStride(context.spec));
}

void AddUnabsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                   std::span<const IndexRange> blocks, AttentionSums& sums) {
  context.head_attention.Add(QueryRunsOf(batch), context.activations.queries.get(), blocks,
                             ExpandedBlocks(context, weights, layer, batch), sums);
}

}  // namespace moestro
