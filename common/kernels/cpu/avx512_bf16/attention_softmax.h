// softmax_step for up to eight queries of one block, with the same bits: their reductions run side by side, so that
// none waits for its own chain.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/kernels/cpu/attention_block.h"
#include "common/kernels/cpu/avx512/simd.h"
#include "common/kernels/cpu/avx512_bf16/linear_block.h"

namespace moestro::avx512_bf16 {

constexpr int64_t kSoftmaxQueries = 8;

// Lane i of the result, i < 8: the reduction of x[i], in the order of _mm512_reduce_add_ps: lanes 8 apart, 4, 2, 1.
template <typename Op>
[[gnu::always_inline]] static inline __m512 ReduceEight(const __m512 (&x)[kSoftmaxQueries], Op op) {
  __m512 a[4], b[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // quarters: two of x[i], then two of x[i + 4]
    a[i] = op(_mm512_shuffle_f32x4(x[i], x[i + 4], 0x44), _mm512_shuffle_f32x4(x[i], x[i + 4], 0xee));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {  // quarters: x[i], x[i + 4], x[i + 2], x[i + 6]
    b[i] = op(_mm512_shuffle_f32x4(a[i], a[i + 2], 0x88), _mm512_shuffle_f32x4(a[i], a[i + 2], 0xdd));
  }
  // In each quarter: two numbers of b[0], then two of b[1].
  const __m512 c = op(_mm512_shuffle_ps(b[0], b[1], 0x44), _mm512_shuffle_ps(b[0], b[1], 0xee));
  const __m512 d = op(c, _mm512_permute_ps(c, 0xb1));
  // Lanes 0, 4, 8, 12 of d: x[0], x[4], x[2], x[6]; lanes 2, 6, 10, 14: x[1], x[5], x[3], x[7].
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 8, 10, 4, 6, 12, 14, 0, 2, 8, 10, 4, 6, 12, 14), d);
}

// The `count` queries' step over the tokens that `visible` has a bit for. rescales: the factors for the sums so far.
// vcvtneps2bf16 turns denormal weights into zeros. No sum changes: vdpbf16ps takes them as zeros too, and beside the
// maximum's weight of 1 they vanish from state.sum.
static inline void SoftmaxOfQueries(const float (*scores)[kAttentionBlock], uint64_t visible, int64_t count,
                                    float scale, SoftmaxState* states, uint16_t (*weights)[kAttentionBlock],
                                    float* rescales) {
  constexpr int kTokenVectors = kAttentionBlock / 16;
  const __m512 factor = _mm512_set1_ps(scale), lowest = _mm512_set1_ps(-__builtin_inff());
  __mmask16 mask[kTokenVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kTokenVectors; ++v) mask[v] = static_cast<__mmask16>(visible >> (16 * v));
  __m512 greatest[kSoftmaxQueries];
#pragma GCC unroll 8
  for (int i = 0; i < kSoftmaxQueries; ++i) {
    greatest[i] = lowest;
    if (i >= count) continue;
    __m512 x[kTokenVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTokenVectors; ++v) {
      x[v] = _mm512_mask_mul_ps(lowest, mask[v], _mm512_load_ps(scores[i] + v * 16), factor);
    }
    greatest[i] = _mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3]));
  }
  // States are pairs of a maximum and a sum.
  const auto numbers = static_cast<__mmask16>((1u << (2 * count)) - 1);
  const __m512 before = _mm512_maskz_loadu_ps(numbers, states);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
  const __m512 old_maxima = _mm512_permutexvar_ps(even, before);
  const __m512 old_sums = _mm512_permutexvar_ps(_mm512_add_epi32(even, _mm512_set1_epi32(1)), before);
  const __m512 maxima =
      _mm512_max_ps(ReduceEight(greatest, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); }), old_maxima);
  const __m512 factors = avx512::Exp(_mm512_sub_ps(old_maxima, maxima));
  _mm256_storeu_ps(rescales, _mm512_castps512_ps256(factors));
  alignas(64) float shifts[16];
  _mm512_store_ps(shifts, maxima);
  __m512 totals[kSoftmaxQueries];
#pragma GCC unroll 8
  for (int i = 0; i < kSoftmaxQueries; ++i) {
    totals[i] = _mm512_setzero_ps();
    if (i >= count) continue;
    const __m512 shift = _mm512_set1_ps(shifts[i]);
    __m512 sum[kTokenVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTokenVectors; ++v) {
      const __m512 scaled = _mm512_mul_ps(_mm512_load_ps(scores[i] + v * 16), factor);
      const __m512 weight = _mm512_maskz_mov_ps(mask[v], avx512::Exp(_mm512_sub_ps(scaled, shift)));
      const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(weight));
      _mm256_store_si256(reinterpret_cast<__m256i*>(weights[i] + v * 16), rounded);
      sum[v] = avx512::Widen(rounded);
    }
    totals[i] = _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
    KeepOrder();
  }
  const __m512 total = ReduceEight(totals, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
  const __m512 sums = _mm512_fmadd_ps(old_sums, factors, total);
  const __m512i pairs = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  _mm512_mask_storeu_ps(states, numbers, _mm512_permutex2var_ps(maxima, pairs, sums));
}

}  // namespace moestro::avx512_bf16
