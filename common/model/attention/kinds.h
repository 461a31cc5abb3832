// Internal to the folder: what differs between kinds of attention. attention.cc has what they share.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/functional/function_ref.h"
#include "common/base/math.h"
#include "common/model/attention/attention_buffers.h"
#include "common/model/attention/flash_attention.h"
#include "common/model/batch.h"
#include "common/model/binding.h"

namespace moestro::model {

// Selects the outputs of the rows' projections.
struct Projections {
  bool kv = false;
  bool queries = false;
};

// Takes a row's entry in the cache, BF16 [kv_dim]. Called for rows in any order, by any worker.
using StoreEntry = absl::FunctionRef<void(int64_t row, const uint16_t* entry)>;

// All functions work on context.buffers.
struct AttentionFunctions {
  // The shape for FlashAttention.
  AttentionShape (*shape)(const weights::ModelSpec& spec);
  // Rows whose `queries` are held at once.
  int64_t max_rows = std::numeric_limits<int64_t>::max();
  // From rows.x, computes the rows' `entries`, each of which is then handed to `store`, and `q`.
  void (*project)(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows,
                  Projections wanted, StoreEntry store);
  // Prepares `queries` of `part`, at most max_rows of the rows, from `q`, which is changed.
  void (*prepare_queries)(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows,
                          IndexRange part);
  // A KV block of the sequence in `pages`, as requested by FlashAttention.
  KvBlock (*block)(const AttentionContext& context, const AttentionWeights& weights, int64_t layer,
                   const kv::KvPages& pages, const FlashAttention::BlockRequest& request);
  // Computes `attn_out` of `part` from `latents`. Null: attention sums values, not latents.
  void (*project_values)(const AttentionContext& context, const AttentionWeights& weights, IndexRange part) = nullptr;
};

// MLA. Absorbed: queries are projected into the latent space, where the cached vectors are keys and values of all
// heads. Un-absorbed: the cached vectors are expanded into each head's keys and values, KV block by KV block.
extern const AttentionFunctions kAbsorbedAttention;
extern const AttentionFunctions kUnabsorbedAttention;
// Grouped queries (GQA).
extern const AttentionFunctions kGroupedAttention;

inline const AttentionFunctions& KindOf(const weights::ModelSpec& spec, MlaForm form) {
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries) return kGroupedAttention;
  return form == MlaForm::kAbsorbed ? kAbsorbedAttention : kUnabsorbedAttention;
}

// AttentionFunctions::project of both forms of MLA.
void ProjectLatents(const AttentionContext& context, const AttentionWeights& weights, const RowsView& rows,
                    Projections wanted, StoreEntry store);
// Rotates the qk_rope_head_dim elements of a query or key to the row's position.
void RotateToRow(const AttentionContext& context, const RowsView& rows, int64_t row, float* x);

}  // namespace moestro::model
