// Shared by AVX2 kernels: partial vectors, conversions, exp. Internal linkage throughout (see kernels.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace moestro::avx2 {

constexpr int64_t kLanes = 8;

// All bits set in the first min(8, max(0, n)) lanes.
static inline __m256i FirstLanes(int64_t n) {
  const int lanes = n >= kLanes ? 8 : n <= 0 ? 0 : static_cast<int>(n);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Loads 8 elements as F32. LoadFirst reads only the first n; the other lanes are zero.
static inline __m256 Load(const float* p) { return _mm256_loadu_ps(p); }
static inline __m256 Widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}
static inline __m256 Load(const uint16_t* bf16) {
  return Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bf16)));
}
static inline __m256 LoadFirst(const float* p, int64_t n) {
  return n >= kLanes ? Load(p) : _mm256_maskload_ps(p, FirstLanes(n));
}

// Writes only the first n lanes.
static inline void StoreFirst(float* p, int64_t n, __m256 value) {
  if (n >= kLanes) {
    _mm256_storeu_ps(p, value);
  } else {
    _mm256_maskstore_ps(p, FirstLanes(n), value);
  }
}

// Nearest even, NaN quieted, as in moestro::ToBf16.
static inline __m128i RoundToBf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i quieted = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i result = _mm256_blendv_epi8(rounded, quieted, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
}
static inline void StoreFirstBf16(uint16_t* p, int64_t n, __m256 value) {
  const __m128i bits = RoundToBf16(value);
  if (n >= kLanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bits);
    return;
  }
  alignas(16) uint16_t lanes[kLanes];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), bits);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// 2^n for integral n in [-126, 127].
static inline __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// e^x within 2 units of the last place; 0 below and +inf above the range of F32; NaN stays NaN.
// x = n ln2 + r with |r| <= ln2/2; e^r by its Taylor polynomial of degree 7 (truncation r^8/8! < 6e-9, a tenth of the
// rounding unit); 2^n in two factors, of which only the second product can round, overflow or underflow.
static inline __m256 Exp(__m256 x) {
  // Clamped far outside the range of results, yet small enough that n ln2 below is accurate. Operand order: NaN passes.
  x = _mm256_min_ps(_mm256_set1_ps(120.0f), _mm256_max_ps(_mm256_set1_ps(-120.0f), x));
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln2 in two parts; the first has so few bits that its product with n is exact.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i power = _mm256_cvtps_epi32(n);  // -173..173; arbitrary in NaN lanes, whose p is NaN
  const __m256i half = _mm256_srai_epi32(power, 1);
  return _mm256_mul_ps(_mm256_mul_ps(p, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(power, half)));
}

// Adds the 8 lanes in a fixed order.
static inline float Sum(__m256 v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// sum_i a[i] * b[i] with 4 accumulators of 8 lanes. Element i always goes to accumulator i / 8 % 4, and they are added
// in fixed order. So the bits depend only on the two vectors.
static inline float Dot(const float* a, const float* b, int64_t n) {
  __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    sum0 = _mm256_fmadd_ps(Load(a + i), Load(b + i), sum0);
    sum1 = _mm256_fmadd_ps(Load(a + i + kLanes), Load(b + i + kLanes), sum1);
    sum2 = _mm256_fmadd_ps(Load(a + i + 2 * kLanes), Load(b + i + 2 * kLanes), sum2);
    sum3 = _mm256_fmadd_ps(Load(a + i + 3 * kLanes), Load(b + i + 3 * kLanes), sum3);
  }
  for (int accumulator = 0; i < n; i += kLanes, ++accumulator) {
    __m256& sum = accumulator == 0 ? sum0 : accumulator == 1 ? sum1 : accumulator == 2 ? sum2 : sum3;
    sum = _mm256_fmadd_ps(LoadFirst(a + i, n - i), LoadFirst(b + i, n - i), sum);
  }
  return Sum(_mm256_add_ps(_mm256_add_ps(sum0, sum1), _mm256_add_ps(sum2, sum3)));
}

}  // namespace moestro::avx2
