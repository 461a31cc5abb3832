#include <algorithm>

#include "common/model/attention/kinds.h"
#include "common/model/attention/rope.h"
#include "common/model/linear.h"

namespace moestro::model {
namespace {

AttentionShape Shape(const weights::ModelSpec& spec) {
  return {.heads = spec.num_heads,
          .kv_heads = spec.num_kv_heads,
          .key_dim = spec.qk_head_dim(),
          .value_dim = spec.v_head_dim,
          .scale = static_cast<float>(SoftmaxScale(spec)),
          .kv_heads_together = spec.num_kv_heads};
}

int64_t KeysWidth(const weights::ModelSpec& spec) { return spec.num_kv_heads * spec.v_head_dim; }

// x += bias in F32, one rounding after the projection's, then clamped. Null bias: there is none.
void AddBiasAndClamp(const AttentionContext& context, const float* bias, int64_t width, float* x) {
  if (bias != nullptr) context.kernels.axpy(1, bias, width, x);
  const auto limit = static_cast<float>(context.spec.clip_qkv);
  if (limit == 0) return;
  for (int64_t i = 0; i < width; ++i) x[i] = std::clamp(x[i], -limit, limit);
}

// x = norm(x) of a row's heads, of each or of all together. Null norm: there is none.
void NormHeads(const AttentionContext& context, const float* norm, int64_t heads, float* x) {
  if (norm == nullptr) return;
  const bool all = context.spec.norms_of_all_heads != 0;
  const int64_t dim = context.spec.v_head_dim, width = all ? heads * dim : dim;
  for (int64_t first = 0; first < heads * dim; first += width) {
    context.kernels.rms_norm(x + first, norm, width, static_cast<float>(context.spec.rms_norm_eps), x + first, nullptr);
  }
}

// Rotates each of a row's heads. Numbers from rotated_dims() on pass through.
void RotateHeads(const weights::ModelSpec& spec, const RowsView& rows, int64_t row, int64_t heads, float* x) {
  const int64_t pairs = spec.rotated_dims() / 2;
  for (int64_t head = 0; head < heads; ++head) {
    RotateHalves(rows.cosine + row * pairs, rows.sine + row * pairs, pairs, x + head * spec.v_head_dim);
  }
}

// Rows that a worker stores one behind the other. A line of packed keys has 16 tokens: workers in turn would take it
// from each other for every one.
int64_t RowsTogether(const AttentionContext& context, int64_t rows) {
  return std::clamp<int64_t>(rows / (8 * context.pool.threads()), 1, 16);
}

void Project(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows, Projections wanted,
             StoreEntry store) {
  const weights::ModelSpec& spec = context.spec;
  const int64_t width = KeysWidth(spec);
  float* keys = context.buffers.kv.get();
  float* values = keys + rows.count * width;
  const LinearInput x{rows.x, spec.hidden_size, rows.count};
  const LinearJob jobs[] = {{weights.q_b, x, context.buffers.q.get()}, {weights.k, x, keys}, {weights.v, x, values}};
  RunLinears(context, std::span(jobs).subspan(wanted.queries ? 0 : 1, (wanted.queries ? 1 : 0) + (wanted.kv ? 2 : 0)),
             context.buffers.coded.get());
  if (!wanted.kv) return;
  const auto finish = [&](int64_t row) {
    uint16_t* entry = context.buffers.entries.get() + row * spec.kv_dim();
    float* row_keys = keys + row * width;
    float* row_values = values + row * width;
    AddBiasAndClamp(context, weights.k_bias, width, row_keys);
    AddBiasAndClamp(context, weights.v_bias, width, row_values);
    NormHeads(context, weights.k_norm, spec.num_kv_heads, row_keys);
    RotateHeads(spec, rows, row, spec.num_kv_heads, row_keys);
    context.kernels.to_bf16(row_keys, width, entry);
    context.kernels.to_bf16(row_values, width, entry + width);
    store(row, entry);
  };
  const int64_t together = RowsTogether(context, rows.count);
  context.pool.Run(CeilDiv(rows.count, together), [&](int64_t task, int) {
    const int64_t end = std::min(rows.count, (task + 1) * together);
    for (int64_t row = task * together; row < end; ++row) finish(row);
  });
}

// queries[kv head, row, head of the group]
void PrepareQueries(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows,
                    IndexRange part) {
  const weights::ModelSpec& spec = context.spec;
  const int64_t dim = spec.v_head_dim;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  context.pool.Run(part.size(), [&](int64_t i, int) {
    const int64_t row = part.begin + i;
    float* const row_queries = context.buffers.q.get() + row * spec.num_heads * dim;
    AddBiasAndClamp(context, weights.q_bias, spec.num_heads * dim, row_queries);
    NormHeads(context, weights.q_norm, spec.num_heads, row_queries);
    RotateHeads(spec, rows, row, spec.num_heads, row_queries);
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      const int64_t place = (head / group * part.size() + i) * group + head % group;
      context.kernels.to_bf16(row_queries + head * dim, dim, context.buffers.queries.get() + place * dim);
    }
  });
}

// The block as it lies in the cache: packed, or rows where the ranks of a prefill exchange them.
KvBlock CachedBlock(const AttentionContext& context, const AttentionWeights&, int64_t layer, const kv::KvPages& pages,
                    const FlashAttention::BlockRequest& request) {
  const weights::ModelSpec& spec = context.spec;
  const uint16_t* const block = pages.Block(layer, request.block);
  const uint16_t* const next = pages.Block(layer, request.next_block);
  if (pages.geometry().kv_heads > 0) {
    const kv::PackedHeads heads = pages.geometry().heads();
    const int64_t first = heads.Keys(request.kv_heads.begin);
    return {.next = reinterpret_cast<const uint8_t*>(next + first),
            .next_bytes = request.kv_heads.size() * heads.head_elements() * 2,
            .packed = reinterpret_cast<const uint8_t*>(block + first),
            .packed_values = heads.key_elements() * 2,
            .head_bytes = heads.head_elements() * 2};
  }
  const uint16_t* keys = block + request.kv_heads.begin * spec.v_head_dim;
  KvBlock rows{
      .keys = keys, .key_stride = spec.kv_dim(), .values = keys + KeysWidth(spec), .value_stride = spec.kv_dim()};
  if (request.kv_heads.size() == spec.num_kv_heads) {  // whole rows, so the next block is contiguous
    rows.next = reinterpret_cast<const uint8_t*>(next);
    rows.next_bytes = kv::kPageTokens * spec.kv_dim() * 2;
  }
  return rows;
}

}  // namespace

constinit const AttentionFunctions kGroupedAttention = {
    .shape = Shape, .project = Project, .prepare_queries = PrepareQueries, .block = CachedBlock};

}  // namespace moestro::model
