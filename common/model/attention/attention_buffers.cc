#include "common/model/attention/attention_buffers.h"

#include <algorithm>

#include "common/kv/format.h"
#include "common/model/attention/kinds.h"

namespace moestro::model {

template <typename Take>
void AttentionBuffers::Visit(const weights::ModelSpec& spec, int64_t max_rows, int threads, Take&& take) {
  const bool has_latents = spec.attention_kind() == weights::AttentionKind::kLatent;
  const int64_t absorbed_queries = has_latents ? kAbsorbedRows * spec.kv_dim() : 0;
  take(q_a, max_rows * spec.q_lora_rank);
  take(q_a_bf16, max_rows * spec.q_lora_rank);
  take(q, max_rows * spec.num_heads * spec.qk_head_dim());
  take(kv, max_rows * spec.kv_dim());
  take(entries, max_rows * spec.kv_dim());
  take(queries, spec.num_heads * std::max(max_rows * spec.qk_head_dim(), absorbed_queries));
  take(latents, kAbsorbedRows * spec.num_heads * spec.kv_lora_rank);
  take(attn_out, max_rows * AttnOutStride(spec));
  take(coded, max_rows * MostCodedBytes(std::max({spec.hidden_size, spec.q_lora_rank, AttnOutStride(spec)})));
  if (!has_latents) return;
  workers.resize(static_cast<size_t>(threads));
  for (Scratch& worker : workers) {
    take(worker.head, std::max(kAbsorbedRows * std::max(spec.kv_lora_rank, spec.v_head_dim),
                               kv::kPageTokens * (spec.qk_nope_head_dim + spec.v_head_dim)));
    take(worker.head_bf16, kAbsorbedRows * spec.qk_nope_head_dim);
    take(worker.keys, kv::kPageTokens * spec.qk_head_dim());
    take(worker.values, kv::kPageTokens * spec.v_head_dim);
  }
}

AttentionBuffers::AttentionBuffers(const EngineContext& context, int64_t max_rows) {
  const weights::ModelSpec& spec = context.spec;
  Visit(spec, max_rows, context.pool.threads(), AllocateBuffers());
  over_heads.emplace(context.kernels, context.pool, KindOf(spec, MlaForm::kUnabsorbed).shape(spec));
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries) return;
  over_latents.emplace(context.kernels, context.pool, KindOf(spec, MlaForm::kAbsorbed).shape(spec));
}

int64_t AttentionBuffers::Bytes(const weights::ModelSpec& spec, int64_t max_rows, int threads) {
  CountBufferBytes count;
  AttentionBuffers().Visit(spec, max_rows, threads, count);
  return count.bytes;
}

}  // namespace moestro::model
