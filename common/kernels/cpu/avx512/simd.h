// Shared by AVX-512 kernels: masked loads, fetches, conversions, exp. Internal linkage throughout (see kernels.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace moestro::avx512 {

constexpr int64_t kLanes = 16;
constexpr int kGroupVectors = 4;  // of 16 rows: one group
constexpr __mmask16 kAllLanes = 0xffff;

// The first min(16, max(0, n)) lanes.
static inline __mmask16 FirstLanes(int64_t n) {
  return n >= kLanes ? static_cast<__mmask16>(0xffff) : n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << n) - 1);
}

// Loads 16 elements as F32; lanes outside the mask are zero and not read.
static inline __m512 Load(const float* p) { return _mm512_loadu_ps(p); }
static inline __m512 Load(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
static inline __m512 Widen(__m256i bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}
static inline __m512 Load(const uint16_t* bf16) {
  return Widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bf16)));
}
static inline __m512 Load(const uint16_t* bf16, __mmask16 mask) { return Widen(_mm256_maskz_loadu_epi16(mask, bf16)); }

[[gnu::always_inline]] static inline void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}
[[gnu::always_inline]] static inline void PrefetchFar(const uint8_t* p) {  // into L2
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

// Keeps the compiler from loading operands so early that accumulators spill; the CPU looks ahead anyway.
[[gnu::always_inline]] static inline void KeepOrder() { asm volatile("" ::: "memory"); }

// Nearest even, NaN quieted, as in moestro::ToBf16. Integer arithmetic, because vcvtneps2bf16 flushes denormals.
static inline __m256i RoundToBf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}

// e^x within 2 units of the last place; 0 below and +inf above the range of F32; NaN stays NaN.
// x = n ln2 + r with |r| <= ln2/2; e^r by its Taylor polynomial of degree 7 (truncation r^8/8! < 6e-9, a tenth of the
// rounding unit); 2^n by scalef, which overflows and underflows correctly.
static inline __m512 Exp(__m512 x) {
  // Clamped far outside the range of results, yet small enough that n ln2 below is accurate. Operand order: NaN passes.
  x = _mm512_min_ps(_mm512_set1_ps(120.0f), _mm512_max_ps(_mm512_set1_ps(-120.0f), x));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)), 0);
  // ln2 in two parts; the first has so few bits that its product with n is exact.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// sum_i a[i] * b[i] with 4 accumulators of 16 lanes. Element i always goes to accumulator i / 16 % 4, and they are
// added in fixed order. So the bits depend only on the two vectors.
template <typename T>
static inline float Dot(const float* a, const T* b, int64_t n) {
  __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    sum0 = _mm512_fmadd_ps(Load(a + i), Load(b + i), sum0);
    sum1 = _mm512_fmadd_ps(Load(a + i + kLanes), Load(b + i + kLanes), sum1);
    sum2 = _mm512_fmadd_ps(Load(a + i + 2 * kLanes), Load(b + i + 2 * kLanes), sum2);
    sum3 = _mm512_fmadd_ps(Load(a + i + 3 * kLanes), Load(b + i + 3 * kLanes), sum3);
  }
  for (int accumulator = 0; i < n; i += kLanes, ++accumulator) {
    const __mmask16 mask = FirstLanes(n - i);
    __m512& sum = accumulator == 0 ? sum0 : accumulator == 1 ? sum1 : accumulator == 2 ? sum2 : sum3;
    sum = _mm512_fmadd_ps(Load(a + i, mask), Load(b + i, mask), sum);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum0, sum1), _mm512_add_ps(sum2, sum3)));
}

}  // namespace moestro::avx512
