#include "common/kernels/cpu/avx512/kernels.h"
#include "common/kernels/cpu/avx512/simd.h"

namespace moestro::avx512 {

// Masked stores can be slow (tens of cycles for 16-bit lanes on Zen), so only the last vector uses one.
static inline void Store(float* p, __mmask16 mask, __m512 value) {
  if (mask == kAllLanes) {
    _mm512_storeu_ps(p, value);
  } else {
    _mm512_mask_storeu_ps(p, mask, value);
  }
}
static inline void Store(uint16_t* bf16, __mmask16 mask, __m512 value) {
  const __m256i rounded = RoundToBf16(value);
  if (mask == kAllLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bf16), rounded);
  } else {
    _mm256_mask_storeu_epi16(bf16, mask, rounded);
  }
}

void RouterLogits(const float* w, int64_t experts, int64_t hidden, const float* x, float* out) {
  for (int64_t expert = 0; expert < experts; ++expert) out[expert] = Dot(x, w + expert * hidden, hidden);
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16) {
  const __m512 mean = _mm512_set1_ps(Dot(x, x, n) / static_cast<float>(n) + eps);
  const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_sqrt_ps(mean));
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    const __m512 value = _mm512_mul_ps(_mm512_mul_ps(Load(x + i, mask), inverse), Load(weight + i, mask));
    if (out != nullptr) Store(out + i, mask, value);
    if (out_bf16 != nullptr) Store(out_bf16 + i, mask, value);
  }
}

void LayerNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += kLanes) sum = _mm512_add_ps(sum, Load(x + i, FirstLanes(n - i)));
  const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / static_cast<float>(n));
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    const __m512 centred = _mm512_maskz_sub_ps(mask, Load(x + i, mask), mean);
    squares = _mm512_fmadd_ps(centred, centred, squares);
  }
  const __m512 variance = _mm512_set1_ps(_mm512_reduce_add_ps(squares) / static_cast<float>(n) + eps);
  const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_sqrt_ps(variance));
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    const __m512 centred = _mm512_sub_ps(Load(x + i, mask), mean);
    const __m512 value = _mm512_mul_ps(_mm512_mul_ps(centred, inverse), Load(weight + i, mask));
    if (out != nullptr) Store(out + i, mask, value);
    if (out_bf16 != nullptr) Store(out_bf16 + i, mask, value);
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, uint16_t* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    const __m512 g = Load(gate + i, mask);
    const __m512 denominator = _mm512_add_ps(one, Exp(_mm512_sub_ps(_mm512_setzero_ps(), g)));
    Store(out + i, mask, _mm512_mul_ps(_mm512_div_ps(g, denominator), Load(up + i, mask)));
  }
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float limit, float alpha, uint16_t* out) {
  const __m512 one = _mm512_set1_ps(1.0f), high = _mm512_set1_ps(limit), low = _mm512_set1_ps(-limit);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    // Operand order: NaN passes.
    const __m512 g = _mm512_min_ps(high, Load(gate + i, mask));
    const __m512 u = _mm512_max_ps(low, _mm512_min_ps(high, Load(up + i, mask)));
    const __m512 denominator = _mm512_add_ps(one, Exp(_mm512_mul_ps(_mm512_set1_ps(-alpha), g)));
    Store(out + i, mask, _mm512_mul_ps(_mm512_div_ps(g, denominator), _mm512_add_ps(u, one)));
  }
}

void ToBf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    Store(out + i, mask, Load(x + i, mask));
  }
}

void Axpy(float a, const float* x, int64_t n, float* y) {
  const __m512 factor = _mm512_set1_ps(a);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    Store(y + i, mask, _mm512_fmadd_ps(factor, Load(x + i, mask), Load(y + i, mask)));
  }
}

void Axpby(float a, const float* x, float b, int64_t n, float* y) {
  const __m512 x_factor = _mm512_set1_ps(a);
  const __m512 y_factor = _mm512_set1_ps(b);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstLanes(n - i);
    const __m512 scaled = _mm512_mul_ps(y_factor, Load(y + i, mask));
    Store(y + i, mask, _mm512_fmadd_ps(x_factor, Load(x + i, mask), scaled));
  }
}

}  // namespace moestro::avx512
