// The parts of softmax_step (common/kernels/cpu/kernels.h): all parts for one query, or each part for several queries,
// whose chains of dependent instructions then overlap.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/avx512/simd.h"

namespace moestro::avx512 {

// The maximum of `tokens` scores, scaled.
static inline float GreatestScore(const float* scores, int64_t tokens, float scale) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  const __m512 factor = _mm512_set1_ps(scale);
  __m512 greatest = lowest;
  for (int64_t block = 0; block < tokens; block += kAttentionBlock) {
#pragma GCC unroll 4
    for (int64_t t = block; t < block + kAttentionBlock; t += kLanes) {
      const __mmask16 mask = FirstLanes(tokens - t);
      greatest = _mm512_max_ps(greatest, _mm512_mask_mul_ps(lowest, mask, Load(scores + t, mask), factor));
    }
  }
  return _mm512_reduce_max_ps(greatest);
}

// weights = e^(scaled score - shift), zeros from `tokens` to `columns`; returns their sum.
static inline float StoreWeights(const float* scores, int64_t tokens, int64_t columns, float scale, float shift,
                                 uint16_t* weights) {
  constexpr int kVectors = kAttentionBlock / kLanes;
  const __m512 factor = _mm512_set1_ps(scale);
  __m512 sums[kVectors] = {};
  for (int64_t block = 0; block < columns; block += kAttentionBlock) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int64_t t = block + v * kLanes;
      const __mmask16 mask = FirstLanes(tokens - t);
      const __m512 scaled = _mm512_mul_ps(Load(scores + t, mask), factor);
      const __m512 weight = _mm512_maskz_mov_ps(mask, Exp(_mm512_sub_ps(scaled, _mm512_set1_ps(shift))));
      const __m256i rounded = RoundToBf16(weight);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + t), rounded);
      sums[v] = _mm512_add_ps(sums[v], Widen(rounded));
    }
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
}

}  // namespace moestro::avx512
