#include <algorithm>

#include "common/model/attention.h"
#include "common/model/rope.h"

namespace moestro {
namespace {

int64_t KeysWidth(const ModelSpec& spec) { return spec.num_kv_heads * spec.v_head_dim; }

// x = rotated norm(x), of one head. REQUIRES: a head rotates as a whole.
void NormAndRotate(const EngineContext& context, const float* norm, int64_t row, float* x) {
  const int64_t dim = context.spec.v_head_dim;
  const int64_t pairs = dim / 2;
  context.kernels.rms_norm(x, norm, dim, static_cast<float>(context.spec.rms_norm_eps), x, nullptr);
  RotateHalves(context.activations.cosine.get() + row * pairs, context.activations.sine.get() + row * pairs, pairs, x);
}

// One layer's blocks of the batch's sequences, as the cache holds them.
auto CachedBlocks(const EngineContext& context, int64_t layer, const CheckedBatch& batch) {
  return [&context, layer, &batch](const FlashAttention::BlockRequest& request) {
    const ModelSpec& spec = context.spec;
    const KvPages& cache = batch.pages(batch.runs[request.run].begin);
    const uint16_t* keys = cache.Block(layer, request.block) + request.kv_heads.begin * spec.v_head_dim;
    KvBlock rows{
        .keys = keys, .key_stride = spec.kv_dim(), .values = keys + KeysWidth(spec), .value_stride = spec.kv_dim()};
    if (request.kv_heads.size() == spec.num_kv_heads) {  // so whole rows come next
      rows.next = reinterpret_cast<const uint8_t*>(cache.Block(layer, request.next_block));
      rows.next_bytes = kPageTokens * spec.kv_dim() * 2;
    }
    return rows;
  };
}

}  // namespace

float* GroupedValues(const EngineContext& context, int64_t rows) {
  return context.activations.kv_a.get() + rows * KeysWidth(context.spec);
}

void StoreKeysValues(EngineContext& context, const AttentionWeights& weights, int64_t layer,
                     const CheckedBatch& batch) {
  const int64_t dim = context.spec.v_head_dim;
  const int64_t width = KeysWidth(context.spec);
  context.pool.Run(batch.size(), [&](int64_t row, int) {
    uint16_t* entry = batch.pages(row).Token(layer, batch.rows[row].position);
    float* keys = context.activations.kv_a.get() + row * width;
    for (int64_t head = 0; head < context.spec.num_kv_heads; ++head) {
      NormAndRotate(context, weights.k_norm, row, keys + head * dim);
    }
    context.kernels.to_bf16(keys, width, entry);
    context.kernels.to_bf16(GroupedValues(context, batch.size()) + row * width, width, entry + width);
  });
}

// queries[kv head, row, head of the group]
void NarrowGroupedQueries(EngineContext& context, const AttentionWeights& weights, int64_t rows) {
  const ModelSpec& spec = context.spec;
  const int64_t dim = spec.v_head_dim;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  context.pool.Run(rows, [&](int64_t row, int) {
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      float* query = context.activations.q.get() + (row * spec.num_heads + head) * dim;
      NormAndRotate(context, weights.q_norm, row, query);
      const int64_t place = (head / group * rows + row) * group + head % group;
      context.kernels.to_bf16(query, dim, context.activations.queries.get() + place * dim);
    }
  });
}

void AttendGrouped(EngineContext& context, int64_t layer, const CheckedBatch& batch) {
  Activations& a = context.activations;
  context.head_attention.Run(QueryRunsOf(batch), a.queries.get(), CachedBlocks(context, layer, batch), a.attended.get(),
                             AttendedStride(context.spec));
}

void AddGrouped(EngineContext& context, int64_t layer, const CheckedBatch& batch, std::span<const IndexRange> blocks,
                AttentionSums& sums) {
  context.head_attention.Add(QueryRunsOf(batch), context.activations.queries.get(), blocks,
                             CachedBlocks(context, layer, batch), sums);
}

void FinishHeads(EngineContext& context, int64_t rows, const AttentionSums& sums) {
  context.head_attention.Finish(rows, sums, context.activations.attended.get(), AttendedStride(context.spec));
}

}  // namespace moestro
