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
  AddLinear(context, weights.o, {a.attended.get(), AttendedStride(context.spec), rows}, a.residual.get());
}

// Fills kv_a, the pages, and the input of q_b.
void ProjectToRanks(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch) {
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

void ProjectQueries(EngineContext& context, const AttentionWeights& weights, int64_t rows) {
  const LinearJob job[] = {{weights.q_b, QueryInput(context, rows), context.activations.q.get()}};
  RunLinears(context, job);
}

// Grouped queries: fills q and kv_a.
void ProjectToHeads(EngineContext& context, const AttentionWeights& weights, int64_t rows) {
  const LinearInput input = NormedInput(context, rows);
  const LinearJob jobs[] = {{weights.q_b, input, context.activations.q.get()},
                            {weights.k, input, context.activations.kv_a.get()},
                            {weights.v, input, GroupedValues(context, rows)}};
  RunLinears(context, jobs);
}

// Whether attention gives latents, which become values only when all is summed.
bool SumsLatents(const ModelSpec& spec, MlaForm form) {
  return form == MlaForm::kAbsorbed && !spec.has_grouped_queries();
}

}  // namespace

static_assert(kPageTokens == kAttentionBlock, "a page holds one KV block of every layer");

std::vector<QueryRun> QueryRunsOf(const CheckedBatch& batch) {
  std::vector<QueryRun> runs;
  for (const SequenceRun& run : batch.runs) {
    runs.push_back({run.begin, run.end - run.begin, batch.rows[run.begin].position});
  }
  return runs;
}

void RunAttention(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                  MlaForm form) {
  NormInput(context, weights, batch.size());
  if (context.spec.has_grouped_queries()) {
    ProjectToHeads(context, weights, batch.size());
    StoreKeysValues(context, weights, layer, batch);
    NarrowGroupedQueries(context, weights, batch.size());
    AttendGrouped(context, layer, batch);
  } else {
    ProjectToRanks(context, weights, layer, batch);
    ProjectQueries(context, weights, batch.size());
    if (form == MlaForm::kAbsorbed) {
      AttendAbsorbed(context, weights, layer, batch);
    } else {
      AttendUnabsorbed(context, weights, layer, batch);
    }
  }
  AddAttended(context, weights, batch.size());
}

void ProjectKv(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch) {
  NormInput(context, weights, batch.size());
  const LinearInput input = NormedInput(context, batch.size());
  float* kv = context.activations.kv_a.get();
  if (context.spec.has_grouped_queries()) {
    const LinearJob jobs[] = {{weights.k, input, kv}, {weights.v, input, GroupedValues(context, batch.size())}};
    RunLinears(context, jobs);
    return StoreKeysValues(context, weights, layer, batch);
  }
  const LinearJob job[] = {{weights.kv_a, input, kv}};
  RunLinears(context, job);
  context.pool.Run(batch.size(), [&](int64_t row, int) {
    StoreKv(context, weights, row, batch.pages(row).Token(layer, batch.rows[row].position));
  });
}

int64_t PairProducts(const ModelSpec& spec, MlaForm form) {
  return SumsLatents(spec, form) ? spec.kv_dim() + spec.kv_lora_rank : spec.qk_head_dim() + spec.v_head_dim;
}

int64_t PartRows(const ModelSpec& spec, MlaForm form, int64_t tile_rows) {
  return SumsLatents(spec, form) ? std::min(kAbsorbedRows, tile_rows) : tile_rows;
}

int64_t SumWidth(const ModelSpec& spec, MlaForm form) {
  return SumsLatents(spec, form) ? spec.kv_lora_rank : spec.v_head_dim;
}

AttentionSums PartSums(const ModelSpec& spec, MlaForm form, int64_t rows) {
  return {rows * spec.num_heads, SumWidth(spec, form)};
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
  ProjectQueries(context, weights, batch.size());
  sums.Clear(batch.size() * context.spec.num_heads, SumWidth(context.spec, form));
  if (context.spec.has_grouped_queries()) {
    NarrowGroupedQueries(context, weights, batch.size());
  } else if (form == MlaForm::kAbsorbed) {
    AbsorbQueries(context, weights, batch);
  } else {
    NarrowQueries(context, batch.size());
  }
}

void AttendTo(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
              MlaForm form, std::span<const IndexRange> blocks, AttentionSums& sums) {
  if (context.spec.has_grouped_queries()) {
    AddGrouped(context, layer, batch, blocks, sums);
  } else if (form == MlaForm::kAbsorbed) {
    AddAbsorbed(context, weights, layer, batch, blocks, sums);
  } else {
    AddUnabsorbed(context, weights, layer, batch, blocks, sums);
  }
}

void FinishAttention(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch, MlaForm form,
                     AttentionSums& sums) {
  if (SumsLatents(context.spec, form)) {
    FinishAbsorbed(context, weights, batch, sums);
  } else {
    FinishHeads(context, batch.size(), sums);
  }
  AddAttended(context, weights, batch.size());
}

}  // namespace moestro
