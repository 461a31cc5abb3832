#include "common/kernels/cpu/avx512/kernels.h"
#include "common/kernels/cpu/avx512/simd.h"

namespace moestro::avx512 {

static_assert(kMaxAttentionBlock % kLanes == 0, "padded scores must fit");

// out[c] = out[c] * rescale + sum_t weights[t] * values[t][c] for 16 * kVectors columns, whose accumulators stay in
// registers over all tokens. Only lanes of `mask` of each vector are touched.
template <int kVectors, typename T>
static inline void AddValues(const float* weights, int64_t tokens, float rescale, const T* values, int64_t stride,
                             __mmask16 mask, float* out) {
  __m512 sums[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sums[v] = _mm512_mul_ps(Load(out + v * kLanes, mask), _mm512_set1_ps(rescale));
  for (int64_t t = 0; t < tokens; ++t) {
    const __m512 weight = _mm512_set1_ps(weights[t]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = _mm512_fmadd_ps(weight, Load(values + t * stride + v * kLanes, mask), sums[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) _mm512_mask_storeu_ps(out + v * kLanes, mask, sums[v]);
}

// Scores become weights exp(score - new_max) in place; returns their sum: 16 lanes, each in token order, then the
// lanes.
static inline float Softmax(float* scores, int64_t tokens, float new_max) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t t = 0; t < tokens; t += kLanes) {
    const __mmask16 mask = FirstLanes(tokens - t);
    const __m512 shifted = _mm512_sub_ps(Load(scores + t, mask), _mm512_set1_ps(new_max));
    const __m512 weights = _mm512_maskz_mov_ps(mask, Exp(shifted));
    _mm512_mask_storeu_ps(scores + t, mask, weights);
    sum = _mm512_add_ps(sum, weights);
  }
  return _mm512_reduce_add_ps(sum);
}

// Online softmax: scores of the block, its maximum, rescale what was summed before, add the block in token order.
template <typename T>
static inline void Attend(const AttentionBlock& block, const T* keys, int64_t key_stride, const T* values,
                          int64_t value_stride) {
  alignas(64) float weights[kMaxAttentionBlock];
  float new_max = *block.max_score;
  for (int64_t t = 0; t < block.tokens; ++t) {
    weights[t] = Dot(block.query, keys + t * key_stride, block.key_dim);
    if (weights[t] > new_max) new_max = weights[t];
  }
  const float rescale = _mm512_cvtss_f32(Exp(_mm512_set1_ps(*block.max_score - new_max)));
  *block.max_score = new_max;
  *block.sum = *block.sum * rescale + Softmax(weights, block.tokens, new_max);

  constexpr int kVectors = 8;  // accumulators enough to hide the latency of a fused multiply-add
  constexpr __mmask16 kAll = 0xffff;
  int64_t c = 0;
  for (; c + kVectors * kLanes <= block.value_dim; c += kVectors * kLanes) {
    AddValues<kVectors>(weights, block.tokens, rescale, values + c, value_stride, kAll, block.out + c);
  }
  for (; c < block.value_dim; c += kLanes) {
    AddValues<1>(weights, block.tokens, rescale, values + c, value_stride, FirstLanes(block.value_dim - c),
                 block.out + c);
  }
}

void AttendBf16(const AttentionBlock& block, const uint16_t* keys, const uint16_t* values, int64_t stride) {
  Attend(block, keys, stride, values, stride);
}

void AttendF32(const AttentionBlock& block, const float* keys, int64_t key_stride, const float* values,
               int64_t value_stride) {
  Attend(block, keys, key_stride, values, value_stride);
}

}  // namespace moestro::avx512
