// The arguments of one pass of attention over one KV block. Plain data only: per-ISA sources include this header.
#pragma once

#include <cstdint>

namespace moestro {

// One query row of one head against one KV block. Scores, softmax and sums in F32.
// `max_score`, `sum` and `out` carry the online softmax from block to block; start with -inf, 0 and zeros, divide `out`
// by `sum` at the end. Blocks must come in position order and always have the same boundaries.
struct AttentionBlock {
  const float* query = nullptr;  // [key_dim], already multiplied by the softmax scale
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t tokens = 0;  // 1..kMaxAttentionBlock visible tokens in this block
  float* max_score = nullptr;
  float* sum = nullptr;
  float* out = nullptr;  // [value_dim]
};
inline constexpr int64_t kMaxAttentionBlock = 256;

}  // namespace moestro
