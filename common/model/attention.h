// Multi-head latent attention (MLA): a token's cache is one latent vector and one rotated key that all heads share.
#pragma once

#include <cstdint>

#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/context.h"
#include "common/model/rope.h"

namespace moestro {

// residual += attention(input_norm(residual)) for all rows of the batch; writes the rows' KV of this layer into their
// pages first. REQUIRES: cosine and sine of the rows' positions.
void RunAttention(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch,
                  MlaForm form);

AttentionShape AbsorbedShape(const ModelSpec& spec);
AttentionShape UnabsorbedShape(const ModelSpec& spec);

// Both read `q`, rotating it in place, and the pages, and write `attended`.
//
// Absorbed: queries are taken into the latent space, where the cached vectors are keys and values of every head at
// once.
void AttendAbsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer, const CheckedBatch& batch);
// Un-absorbed: the cached vectors are expanded into each head's keys and values, KV block by KV block.
void AttendUnabsorbed(EngineContext& context, const AttentionWeights& weights, int64_t layer,
                      const CheckedBatch& batch);

// Rotates the qk_rope_head_dim numbers of one head's query to the row's position.
inline void RotateQuery(const EngineContext& context, int64_t row, float* query) {
  const int64_t pairs = context.spec.qk_rope_head_dim / 2;
  RotatePairs(context.activations.cosine.get() + row * pairs, context.activations.sine.get() + row * pairs, pairs,
              query);
}

}  // namespace moestro
