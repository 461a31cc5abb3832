// Inside the folder: what the kinds of attention do differently. attention.cc is what they have in common.
#pragma once

#include <cstdint>
#include <limits>

#include "common/base/math.h"
#include "common/model/attention/attention_buffers.h"
#include "common/model/attention/flash_attention.h"
#include "common/model/batch.h"
#include "common/model/binding.h"

namespace moestro {

// Which outputs of the rows' projections are wanted.
struct Projections {
  bool kv = false;
  bool queries = false;
};

// All work on context.buffers.
struct AttentionFunctions {
  // What FlashAttention computes.
  AttentionShape (*shape)(const ModelSpec& spec);
  // Rows whose `queries` are held at once.
  int64_t max_rows = std::numeric_limits<int64_t>::max();
  // From rows.x: the rows' KV of this layer, into their pages; `q`.
  void (*project)(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                  const CheckedBatch& batch, const RowsView& rows, Projections wanted);
  // `queries` of `part`, at most max_rows of the rows, from `q`, which is changed.
  void (*prepare_queries)(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows,
                          IndexRange part);
  // A KV block of the sequence in `pages`, as FlashAttention asks for it.
  KvBlock (*block)(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                   const KvPages& pages, const FlashAttention::BlockRequest& request);
  // `attn_out` of the `part` from `latents`. Null: what rows attend to are values, not latents.
  void (*project_values)(const AttentionContext& context, const AttentionWeights& weights, IndexRange part) = nullptr;
};

// MLA. Absorbed: queries are taken into the latent space, where the cached vectors are keys and values of every head at
// once. Un-absorbed: the cached vectors are expanded into each head's keys and values, KV block by KV block.
extern const AttentionFunctions kAbsorbedAttention;
extern const AttentionFunctions kUnabsorbedAttention;
// Grouped queries (GQA).
extern const AttentionFunctions kGroupedAttention;

inline const AttentionFunctions& KindOf(const ModelSpec& spec, MlaForm form) {
  if (spec.attention_kind() == AttentionKind::kGroupedQueries) return kGroupedAttention;
  return form == MlaForm::kAbsorbed ? kAbsorbedAttention : kUnabsorbedAttention;
}

// AttentionFunctions::project of both forms of MLA.
void ProjectLatents(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                    const CheckedBatch& batch, const RowsView& rows, Projections wanted);
// Rotates the qk_rope_head_dim numbers of a query or key to the row's position.
void RotateToRow(const AttentionContext& context, const RowsView& rows, int64_t row, float* x);

}  // namespace moestro
