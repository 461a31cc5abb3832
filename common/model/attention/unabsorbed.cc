#include <algorithm>

#include "common/model/attention/kinds.h"
#include "common/model/attention/rope.h"
#include "common/model/linear.h"

namespace moestro::model {
namespace {

AttentionShape Shape(const weights::ModelSpec& spec) {
  return {.heads = spec.num_heads,
          .kv_heads = spec.num_heads,
          .key_dim = spec.qk_head_dim(),
          .value_dim = spec.v_head_dim,
          .scale = static_cast<float>(SoftmaxScale(spec)),
          .step_blocks = kLatentStepBlocks};
}

// queries[head, row] = [q_nope ; rotated q_rope]
void RotateQueries(const AttentionContext& context, const AttentionWeights&, const RowsView& rows, IndexRange part) {
  const weights::ModelSpec& spec = context.spec;
  const int64_t dim = spec.qk_head_dim();
  context.pool.Run(part.size(), [&](int64_t i, int) {
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      const int64_t row = part.begin + i;
      float* query = context.buffers.q.get() + (row * spec.num_heads + head) * dim;
      RotateToRow(context, rows, row, query + spec.qk_nope_head_dim);
      context.kernels.to_bf16(query, dim, context.buffers.queries.get() + (head * part.size() + i) * dim);
    }
  });
}

// One head's keys [key_up latent ; rotated key] and values value_up latent, in the worker's scratch.
KvBlock ExpandedBlock(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                      const kv::KvPages& pages, const FlashAttention::BlockRequest& request) {
  const weights::ModelSpec& spec = context.spec;
  const AttentionBuffers::Scratch& scratch = context.buffers.workers[request.worker];
  const uint16_t* cached = pages.Block(layer, request.block);
  const int64_t nope = spec.qk_nope_head_dim;
  const int64_t width = nope + spec.v_head_dim;
  const int64_t first = request.kv_heads.begin * width;
  LinearRows(context.kernels, weights.kv_b, {cached, spec.kv_dim(), request.tokens}, {first, first + width},
             scratch.head.get());
  for (int64_t t = 0; t < request.tokens; ++t) {
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

}  // namespace

constinit const AttentionFunctions kUnabsorbedAttention = {
    .shape = Shape, .project = ProjectLatents, .prepare_queries = RotateQueries, .block = ExpandedBlock};

}  // namespace moestro::model
