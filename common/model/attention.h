// Attention of the model's kind. Multi-head latent attention (MLA): a token's cache is one latent vector and one
// rotated key that all heads share; MlaForm says how it is computed. Grouped queries (GQA): a token's cache is the keys
// and values of the kv heads; MlaForm says nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/rope.h"

namespace moestro {

// residual += attention(input_norm(residual)) for all rows of the batch; writes the rows' KV of this layer into their
// pages first. REQUIRES: cosine and sine of the rows' positions.
void RunAttention(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                  MlaForm form);

// Multiplications of a head for each query and token that it sees: scores, and sums of values.
int64_t PairProducts(const ModelSpec& spec, MlaForm form);

// The same in parts, for a context of which parts come one after the other (context parallelism): ProjectKv for all
// rows, then, for at most PartRows rows at a time, BeginAttention, AttendTo for each part, FinishAttention. REQUIRES:
// the residual does not change between.
//
// Writes the rows' KV of this layer into their pages.
void ProjectKv(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch);
// Rows of a tile that BeginAttention can take, and the sums that it needs for them.
int64_t PartRows(const ModelSpec& spec, MlaForm form, int64_t tile_rows);
int64_t SumWidth(const ModelSpec& spec, MlaForm form);  // numbers of a head's sum
AttentionSums PartSums(const ModelSpec& spec, MlaForm form, int64_t rows);
// The rows' queries; clears the sums.
void BeginAttention(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch, MlaForm form,
                    AttentionSums& sums);
// What the rows see of these KV blocks of their pages.
void AttendTo(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
              MlaForm form, std::span<const IndexRange> blocks, AttentionSums& sums);
// residual += what the rows have attended to.
void FinishAttention(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch, MlaForm form,
                     AttentionSums& sums);

// The MLA forms read `q`, rotating it in place, and the pages, and write `attended`.
//
// Absorbed: queries are taken into the latent space, where the cached vectors are keys and values of every head at
// once.
void AttendAbsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch);
// Un-absorbed: the cached vectors are expanded into each head's keys and values, KV block by KV block.
void AttendUnabsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer,
                      const CheckedBatch& batch);

// Their three parts: `queries` from `q`; sums over some blocks; `attended` from sums. Absorbed: at most kAbsorbedRows
// rows.
void AbsorbQueries(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch);
void AddAbsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                 std::span<const IndexRange> blocks, AttentionSums& sums);
void FinishAbsorbed(EngineContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                    const AttentionSums& sums);
void NarrowQueries(EngineContext& context, int64_t rows);
void AddUnabsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                   std::span<const IndexRange> blocks, AttentionSums& sums);

// Grouped queries: `q`, which is changed, and the rows' keys and values [rows, kv_heads * head_dim] in kv_a, one behind
// the other; from these the pages' entries, `queries`, and `attended`.
float* GroupedValues(const EngineContext& context, int64_t rows);
void StoreKeysValues(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch);
void NarrowGroupedQueries(EngineContext& context, const AttentionWeights& weights, int64_t rows);
void AttendGrouped(EngineContext& context, int64_t layer, const CheckedBatch& batch);
void AddGrouped(EngineContext& context, int64_t layer, const CheckedBatch& batch, std::span<const IndexRange> blocks,
                AttentionSums& sums);

// `attended` from the sums of un-absorbed MLA or grouped queries.
void FinishHeads(EngineContext& context, int64_t rows, const AttentionSums& sums);

// The batch's sequences.
std::vector<QueryRun> QueryRunsOf(const CheckedBatch& batch);

// Rotates the qk_rope_head_dim numbers of one head's query to the row's position.
inline void RotateQuery(const EngineContext& context, int64_t row, float* query) {
  const int64_t pairs = context.spec.qk_rope_head_dim / 2;
  RotatePairs(context.activations.cosine.get() + row * pairs, context.activations.sine.get() + row * pairs, pairs,
              query);
}

}  // namespace moestro
