// Attention of the model's kind. Multi-head latent attention (MLA): a token's cache is one latent vector and one
// rotated key that all heads share; MlaForm says how it is computed. Grouped queries (GQA): a token's cache is the keys
// and values of the kv heads; MlaForm says nothing.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/attention/attention_buffers.h"
#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/context.h"

namespace moestro {

// residual += attention(input_norm(residual)) for all rows of the batch, in rows.count = batch.size() rows that have
// their positions' cosine and sine; writes the rows' KV of this layer into their pages first. Changes rows.x.
void RunAttention(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                  const CheckedBatch& batch, const RowsView& rows);

// Multiplications of a head for each query and token that it sees: scores, and sums of values.
int64_t PairProducts(const ModelSpec& spec, MlaForm form);
// Numbers of a head's sum of what it sees.
int64_t SumWidth(const ModelSpec& spec, MlaForm form);

// The same in parts, for a context of which parts come one after the other (context parallelism): ProjectKv for all
// rows, then, for at most PartRows rows at a time, BeginAttention, AttendTo for each part, FinishAttention. REQUIRES:
// the residual does not change between.
//
// Writes the rows' KV of this layer into their pages.
void ProjectKv(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
               const CheckedBatch& batch, const RowsView& rows);
// Rows of a tile that BeginAttention can take, and the sums that it needs for them.
int64_t PartRows(const ModelSpec& spec, MlaForm form, int64_t tile_rows);
AttentionSums PartSums(const ModelSpec& spec, MlaForm form, int64_t rows);
// The rows' queries; clears the sums.
void BeginAttention(const AttentionContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                    const RowsView& rows, AttentionSums& sums);
// What the rows see of these KV blocks of their pages.
void AttendTo(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
              const CheckedBatch& batch, std::span<const IndexRange> blocks, AttentionSums& sums);
// residual += what the rows have attended to.
void FinishAttention(const AttentionContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                     const RowsView& rows, const AttentionSums& sums);

}  // namespace moestro
