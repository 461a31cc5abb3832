// The geometry that attention kernels share. Plain data only: per-ISA sources include this header.
#pragma once

#include <cstdint>

namespace moestro {

// Tokens of a KV block. Attention is an online softmax over blocks with these boundaries, whoever computes it, so this
// is part of the numerics: another number gives other bits.
inline constexpr int64_t kAttentionBlock = 64;

// What a query carries from block to block: start with -inf and 0.
struct SoftmaxState {
  float max_score;
  float sum;
};

}  // namespace moestro
