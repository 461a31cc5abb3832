#include "common/model/attention/kinds.h"
#include "common/model/attention/rope.h"
#include "common/model/linear.h"

namespace moestro::model {
namespace {

AttentionShape Shape(const weights::ModelSpec& spec) {
  return {.heads = spec.num_heads,
          .kv_heads = 1,
          .key_dim = spec.kv_dim(),
          .value_dim = spec.kv_lora_rank,
          .scale = static_cast<float>(SoftmaxScale(spec)),
          .step_blocks = kLatentStepBlocks};
}

// queries[row, head] = [key_up^T q_nope ; rotated q_rope]
void AbsorbQueries(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows,
                   IndexRange part) {
  const weights::ModelSpec& spec = context.spec;
  const int64_t nope = spec.qk_nope_head_dim;
  const int64_t latent = spec.kv_lora_rank;
  context.pool.Run(spec.num_heads, [&](int64_t head, int worker) {
    const AttentionBuffers::Scratch& scratch = context.buffers.workers[worker];
    const auto query = [&](int64_t i) {
      return context.buffers.q.get() + ((part.begin + i) * spec.num_heads + head) * spec.qk_head_dim();
    };
    for (int64_t i = 0; i < part.size(); ++i) {
      context.kernels.to_bf16(query(i), nope, scratch.head_bf16.get() + i * nope);
    }
    LinearRows(context.kernels, weights.key_transposed, {scratch.head_bf16.get(), nope, part.size()},
               {head * latent, (head + 1) * latent}, scratch.head.get());
    for (int64_t i = 0; i < part.size(); ++i) {
      uint16_t* absorbed = context.buffers.queries.get() + (i * spec.num_heads + head) * spec.kv_dim();
      context.kernels.to_bf16(scratch.head.get() + i * latent, latent, absorbed);
      RotateToRow(context, rows, part.begin + i, query(i) + nope);
      context.kernels.to_bf16(query(i) + nope, spec.qk_rope_head_dim, absorbed + latent);
    }
  });
}

// The cached vector is the key of all heads; its latent part is their value.
KvBlock CachedBlock(const AttentionContext& context, const AttentionWeights&, int64_t layer, const kv::KvPages& pages,
                    const FlashAttention::BlockRequest& request) {
  const int64_t width = context.spec.kv_dim();
  const uint16_t* cached = pages.Block(layer, request.block);
  return {.keys = cached,
          .key_stride = width,
          .values = cached,
          .value_stride = width,
          .next = reinterpret_cast<const uint8_t*>(pages.Block(layer, request.next_block)),
          .next_bytes = kv::kPageTokens * width * 2};
}

// attn_out = value_up latents
void ProjectValues(const AttentionContext& context, const AttentionWeights& weights, IndexRange part) {
  const weights::ModelSpec& spec = context.spec;
  const int64_t latent = spec.kv_lora_rank;
  const int64_t width = spec.v_head_dim;
  context.pool.Run(spec.num_heads, [&](int64_t head, int worker) {
    const int64_t first = head * (spec.qk_nope_head_dim + width) + spec.qk_nope_head_dim;
    float* values = context.buffers.workers[worker].head.get();
    LinearRows(context.kernels, weights.kv_b,
               {context.buffers.latents.get() + head * latent, spec.num_heads * latent, part.size()},
               {first, first + width}, values);
    for (int64_t i = 0; i < part.size(); ++i) {
      context.kernels.to_bf16(values + i * width, width,
                              context.buffers.attn_out.get() + (part.begin + i) * AttnOutStride(spec) + head * width);
    }
  });
}

}  // namespace

constinit const AttentionFunctions kAbsorbedAttention = {.shape = Shape,
                                                         .max_rows = kAbsorbedRows,
                                                         .project = ProjectLatents,
                                                         .prepare_queries = AbsorbQueries,
                                                         .block = CachedBlock,
                                                         .project_values = ProjectValues};

}  // namespace moestro::model
