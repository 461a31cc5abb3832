// Multi-head latent attention (MLA): a token's cache is one latent vector and one rotated key that all heads share.
#pragma once

#include <cstdint>

#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/context.h"

namespace moestro {

// residual += attention(input_norm(residual)) for all rows of the batch; writes the rows' KV of this layer into their
// pages first. REQUIRES: cosine and sine of the rows' positions.
void RunAttention(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                  MlaForm form);

// Both read `q` (rotating and scaling it in place or into scratch) and the pages, and write `attended`.
//
// Absorbed: queries are taken into the latent space, where the cached vectors are keys and values of every head at
// once.
void AttendAbsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch);
// Un-absorbed: the cached vectors are expanded into each head's keys and values, KV block by KV block.
void AttendUnabsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer,
                      const CheckedBatch& batch);

// Tokens of KV block `block` that a row at `position` sees; 0 or less when the block lies beyond it.
inline int64_t VisibleTokens(int64_t position, int64_t block) {
  const int64_t visible = position + 1 - block * kPageTokens;
  return visible < kPageTokens ? visible : kPageTokens;
}

}  // namespace moestro
