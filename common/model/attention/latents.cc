// Shared by both forms of MLA: low-rank projections and the cache entry.
#include "common/model/attention/kinds.h"
#include "common/model/attention/rope.h"
#include "common/model/linear.h"

namespace moestro::model {
namespace {

// The row's cache entry: the normalised latent, then the rotated key, which is not normalised.
void EntryOf(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows, int64_t row,
             uint16_t* entry) {
  const weights::ModelSpec& spec = context.spec;
  float* latent = context.buffers.kv.get() + row * spec.kv_dim();
  float* key = latent + spec.kv_lora_rank;
  context.kernels.rms_norm(latent, weights.kv_a_norm, spec.kv_lora_rank, static_cast<float>(spec.lora_norm_eps),
                           nullptr, entry);
  RotateToRow(context, rows, row, key);
  context.kernels.to_bf16(key, spec.qk_rope_head_dim, entry + spec.kv_lora_rank);
}

// q_a_bf16 = q_a_norm(q_a)
void NormQueryRank(const AttentionContext& context, const AttentionWeights& weights, int64_t row) {
  const int64_t rank = context.spec.q_lora_rank;
  context.kernels.rms_norm(context.buffers.q_a.get() + row * rank, weights.q_a_norm, rank,
                           static_cast<float>(context.spec.lora_norm_eps), nullptr,
                           context.buffers.q_a_bf16.get() + row * rank);
}

}  // namespace

void ProjectLatents(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows,
                    Projections wanted, StoreEntry store) {
  const AttentionBuffers& buffers = context.buffers;
  const LinearInput x{rows.x, context.spec.hidden_size, rows.count};
  const int64_t rank = context.spec.q_lora_rank;
  const bool wants_q_a = wanted.queries && rank > 0;
  const LinearJob jobs[] = {{weights.kv_a, x, buffers.kv.get()}, {weights.q_a, x, buffers.q_a.get()}};
  RunLinears(context, std::span(jobs).subspan(wanted.kv ? 0 : 1, (wanted.kv ? 1 : 0) + (wants_q_a ? 1 : 0)),
             buffers.coded.get());
  context.pool.Run(rows.count, [&](int64_t row, int) {
    if (wanted.kv) {
      uint16_t* const entry = buffers.entries.get() + row * context.spec.kv_dim();
      EntryOf(context, weights, rows, row, entry);
      store(row, entry);
    }
    if (wants_q_a) NormQueryRank(context, weights, row);
  });
  if (!wanted.queries) return;
  const LinearInput query_input = rank > 0 ? LinearInput{buffers.q_a_bf16.get(), rank, rows.count} : x;
  const LinearJob q_b[] = {{weights.q_b, query_input, buffers.q.get()}};
  RunLinears(context, q_b, buffers.coded.get());
}

void RotateToRow(const AttentionContext& context, const RowsView& rows, int64_t row, float* x) {
  const int64_t pairs = context.spec.qk_rope_head_dim / 2;
  RotatePairs(rows.cosine + row * pairs, rows.sine + row * pairs, pairs, x);
}

}  // namespace moestro::model
