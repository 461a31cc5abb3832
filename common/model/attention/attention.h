// Attention of the model's kind. Multi-head latent attention (MLA): a token's cache is one latent vector and one
// rotated key, shared by all heads; MlaForm selects the computation. Grouped queries (GQA): a token's cache is the keys
// and values of the kv heads; MlaForm is ignored.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/attention/attention_buffers.h"
#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/context.h"

namespace moestro::model {

// residual += attention(input_norm(residual)) for all rows of the batch. `rows` has batch.size() rows with cosine and
// sine of their positions. First writes the rows' KV of this layer into their pages. Changes rows.x.
void RunAttention(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                  const CheckedBatch& batch, const RowsView& rows);

// The same in three parts, which may be computed on different devices: each on buffers of its own, between which the
// caller moves `q`, `entries` and `attn_out`.
//
// Computes the rows' `q` and `entries`. Changes rows.x.
void ProjectRows(const AttentionContext& context, const AttentionWeights& weights, MlaForm form, const RowsView& rows);
// Writes `entries`, BF16 [rows, kv_dim], into the rows' pages of this layer.
void StoreEntries(const EngineContext& context, int64_t layer, const CheckedBatch& batch, const uint16_t* entries);
// Computes `attn_out` from `q`, which it changes, and the pages. Uses cosine and sine of the rows.
void AttendRows(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                const CheckedBatch& batch, const RowsView& rows);
// residual += output projection of `attn_out`
void AddOutputs(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows);

// Multiplications per head, query and visible token: scores, and sums of values.
int64_t PairProducts(const weights::ModelSpec& spec, MlaForm form);
// Elements of a head's sum over visible tokens.
int64_t SumWidth(const weights::ModelSpec& spec, MlaForm form);

// Attention in parts, for a context that arrives in parts (context parallelism). Call ProjectKv for all rows. Then, for
// at most PartRows rows at a time, call BeginAttention, AttendTo for each part, FinishAttention. REQUIRES: the residual
// does not change in between.
//
// Writes the rows' KV of this layer into their pages.
void ProjectKv(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
               const CheckedBatch& batch, const RowsView& rows);
// The maximum rows of a tile for BeginAttention, and their sums.
int64_t PartRows(const weights::ModelSpec& spec, MlaForm form, int64_t tile_rows);
AttentionSums PartSums(const weights::ModelSpec& spec, MlaForm form, int64_t rows);
// Prepares the rows' queries; clears the sums.
void BeginAttention(const AttentionContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                    const RowsView& rows, AttentionSums& sums);
// Attends to the visible positions of these KV blocks of the rows' pages.
void AttendTo(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
              const CheckedBatch& batch, std::span<const IndexRange> blocks, AttentionSums& sums);
// residual += the rows' attention output.
void FinishAttention(const AttentionContext& context, const AttentionWeights& weights, const CheckedBatch& batch,
                     const RowsView& rows, const AttentionSums& sums);

}  // namespace moestro::model
