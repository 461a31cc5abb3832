#include "common/model/attention.h"

#include <algorithm>

#include "common/model/linear.h"
#include "common/model/rope.h"

namespace moestro {
namespace {

// normed_narrow = input_norm(residual)
void NormInput(EngineContext& context, const AttentionWeights& weights, int64_t rows) {
  Activations& a = context.activations;
  const int64_t hidden = context.spec.hidden_size;
  context.pool.Run(rows, [&](int64_t row, int) {
    context.kernels.rms_norm(a.residual.get() + row * hidden, weights.input_norm, hidden,
                             static_cast<float>(context.spec.rms_norm_eps), nullptr,
                             a.normed_narrow.get() + row * hidden);
  });
}

// The row's cache entry: normalised latent, then the rotated key, which is not normalised.
void StoreKv(EngineContext& context, const AttentionWeights& weights, int64_t row, uint16_t* entry) {
  Activations& a = context.activations;
  const ModelSpec& spec = context.spec;
  float* latent = a.kv_a.get() + row * spec.kv_dim();
  float* key = latent + spec.kv_lora_rank;
  const int64_t pairs = spec.qk_rope_head_dim / 2;
  context.kernels.rms_norm(latent, weights.kv_a_norm, spec.kv_lora_rank, static_cast<float>(spec.lora_norm_eps),
                           nullptr, entry);
  RotatePairs(a.cosine.get() + row * pairs, a.sine.get() + row * pairs, pairs, key);
  context.kernels.to_bf16(key, spec.qk_rope_head_dim, entry + spec.kv_lora_rank);
}

// q_a_narrow = q_a_norm(q_a)
void NormQueryRank(EngineContext& context, const AttentionWeights& weights, int64_t row) {
  Activations& a = context.activations;
  const ModelSpec& spec = context.spec;
  context.kernels.rms_norm(a.q_a.get() + row * spec.q_lora_rank, weights.q_a_norm, spec.q_lora_rank,
                           static_cast<float>(spec.lora_norm_eps), nullptr,
                           a.q_a_narrow.get() + row * spec.q_lora_rank);
}

LinearInput NormedInput(const EngineContext& context, int64_t rows) {
  return {context.activations.normed_narrow.get(), context.spec.hidden_size, rows};
}
// What q_b reads.
LinearInput QueryInput(const EngineContext& context, int64_t rows) {
  const int64_t rank = context.spec.q_lora_rank;
  return rank > 0 ? LinearInput{context.activations.q_a_narrow.get(), rank, rows} : NormedInput(context, rows);
}

// residual += o(attended)
void AddAttended(EngineContext& context, const AttentionWeights& weights, int64_t rows) {
  Activations& a = context.activations;
  const int64_t width = context.spec.num_heads * context.spec.v_head_dim;
  AddLinear(context, weights.o, {a.attended.get(), RowStride(width), rows}, a.residual.get());
}

// Fills kv_a, the pages, and the input of q_b.
void ProjectDown(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch) {
  Activations& a = context.activations;
  const LinearInput input = NormedInput(context, batch.size());
  const bool has_q_a = context.spec.q_lora_rank > 0;
  const LinearJob jobs[] = {{weights.kv_a, input, a.kv_a.get()}, {weights.q_a, input, a.q_a.get()}};
  RunLinears(context, std::span(jobs, has_q_a ? 2 : 1));
  context.pool.Run(batch.size(), [&](int64_t row, int) {
    StoreKv(context, weights, row, batch.pages(row).Token(layer, batch.rows[row].position));
    if (has_q_a) NormQueryRank(context, weights, row);
  });
}

}  // namespace

static_assert(kPageTokens == kAttentionBlock, "a page holds one KV block of every layer");

AttentionShape AbsorbedShape(const ModelSpec& spec) {
  return {.heads = spec.num_heads,
          .kv_heads = 1,
          .key_dim = spec.kv_dim(),
          .value_dim = spec.kv_lora_rank,
          .scale = static_cast<float>(SoftmaxScale(spec))};
}

AttentionShape UnabsorbedShape(const ModelSpec& spec) {
  return {.heads = spec.num_heads,
          .kv_heads = spec.num_heads,
          .key_dim = spec.qk_head_dim(),
          .value_dim = spec.v_head_dim,
          .scale = static_cast<float>(SoftmaxScale(spec))};
}

void RunAttention(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                  MlaForm form) {
  Activations& a = context.activations;
  NormInput(context, weights, batch.size());
  ProjectDown(context, weights, layer, batch);
  const LinearJob query_job[] = {{weights.q_b, QueryInput(context, batch.size()), a.q.get()}};
  RunLinears(context, query_job);
  if (form == MlaForm::kAbsorbed) {
    AttendAbsorbed(context, weights, layer, batch);
  } else {
    AttendUnabsorbed(context, weights, layer, batch);
  }
  AddAttended(context, weights, batch.size());
}

void ProjectKv(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch) {
  NormInput(context, weights, batch.size());
  const LinearJob job[] = {{weights.kv_a, NormedInput(context, batch.size()), context.activations.kv_a.get()}};
  RunLinears(context, job);
  context.pool.Run(batch.size(), [&](int64_t row, int) {
    StoreKv(context, weights, row, batch.pages(row).Token(layer, batch.rows[row].position));
  });
}

int64_t PartRows(MlaForm form, int64_t tile_rows) {
  return form == MlaForm::kAbsorbed ? std::min(kAbsorbedRows, tile_rows) : tile_rows;
}

AttentionSums PartSums(const ModelSpec& spec, MlaForm form, int64_t rows) {
  return {rows * spec.num_heads, form == MlaForm::kAbsorbed ? spec.kv_lora_rank : spec.v_head_dim};
}

void BeginAttention(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch, MlaForm form,
                    AttentionSums& sums) {
  Activations& a = context.activations;
  NormInput(context, weights, batch.size());
  if (context.spec.q_lora_rank > 0) {
    const LinearJob job[] = {{weights.q_a, NormedInput(context, batch.size()), a.q_a.get()}};
    RunLinears(context, job);
    context.pool.Run(batch.size(), [&](int64_t row, int) { NormQueryRank(context, weights, row); });
  }
  const LinearJob query_job[] = {{weights.q_b, QueryInput(context, batch.size()), a.q.get()}};
  RunLinears(context, query_job);
  if (form == MlaForm::kAbsorbed) {
    sums.Clear(batch.size() * context.spec.num_heads, context.spec.kv_lora_rank);
    AbsorbQueries(context, weights, batch);
  } else {
    sums.Clear(batch.size() * context.spec.num_heads, context.spec.v_head_dim);
    NarrowQueries(context, batch.size());
  }
}

void AttendTo(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
              MlaForm form, std::span<const IndexRange> blocks, AttentionSums& sums) {
  if (form == MlaForm::kAbsorbed) {
    AddAbsorbed(context, weights, layer, batch, blocks, sums);
  } else {
    AddUnabsorbed(context, weights, layer, batch, blocks, sums);
  }
}

void FinishAttention(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch, MlaForm form,
                     AttentionSums& sums) {
  if (form == MlaForm::kAbsorbed) {
    FinishAbsorbed(context, weights, batch, sums);
  } else {
    FinishUnabsorbed(context, batch.size(), sums);
  }
  AddAttended(context, weights, batch.size());
}

}  // namespace moestro
