#include "common/kernels/cpu/avx2/kernels.h"
#include "common/kernels/cpu/avx2/simd.h"

namespace moestro::avx2 {

// The first n lanes, zeros in the others.
static inline __m256 KeepFirst(__m256 value, int64_t n) {
  return n >= kLanes ? value : _mm256_and_ps(value, _mm256_castsi256_ps(FirstLanes(n)));
}

void RouterLogits(const float* w, int64_t experts, int64_t hidden, const float* x, float* out) {
  for (int64_t expert = 0; expert < experts; ++expert) out[expert] = Dot(x, w + expert * hidden, hidden);
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16) {
  const __m256 mean = _mm256_set1_ps(Dot(x, x, n) / static_cast<float>(n) + eps);
  const __m256 inverse = _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_sqrt_ps(mean));
  for (int64_t i = 0; i < n; i += kLanes) {
    const __m256 value = _mm256_mul_ps(_mm256_mul_ps(LoadFirst(x + i, n - i), inverse), LoadFirst(weight + i, n - i));
    if (out != nullptr) StoreFirst(out + i, n - i, value);
    if (out_bf16 != nullptr) StoreFirstBf16(out_bf16 + i, n - i, value);
  }
}

void LayerNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16) {
  __m256 sum = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += kLanes) sum = _mm256_add_ps(sum, LoadFirst(x + i, n - i));
  const __m256 mean = _mm256_set1_ps(Sum(sum) / static_cast<float>(n));
  __m256 squares = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += kLanes) {
    const __m256 centred = _mm256_sub_ps(LoadFirst(x + i, n - i), KeepFirst(mean, n - i));
    squares = _mm256_fmadd_ps(centred, centred, squares);
  }
  const __m256 variance = _mm256_set1_ps(Sum(squares) / static_cast<float>(n) + eps);
  const __m256 inverse = _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_sqrt_ps(variance));
  for (int64_t i = 0; i < n; i += kLanes) {
    const __m256 centred = _mm256_sub_ps(LoadFirst(x + i, n - i), mean);
    const __m256 value = _mm256_mul_ps(_mm256_mul_ps(centred, inverse), LoadFirst(weight + i, n - i));
    if (out != nullptr) StoreFirst(out + i, n - i, value);
    if (out_bf16 != nullptr) StoreFirstBf16(out_bf16 + i, n - i, value);
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, uint16_t* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __m256 g = LoadFirst(gate + i, n - i);
    const __m256 denominator = _mm256_add_ps(one, Exp(_mm256_sub_ps(_mm256_setzero_ps(), g)));
    StoreFirstBf16(out + i, n - i, _mm256_mul_ps(_mm256_div_ps(g, denominator), LoadFirst(up + i, n - i)));
  }
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float limit, float alpha, uint16_t* out) {
  const __m256 one = _mm256_set1_ps(1.0f), high = _mm256_set1_ps(limit), low = _mm256_set1_ps(-limit);
  for (int64_t i = 0; i < n; i += kLanes) {
    // Operand order: NaN passes.
    const __m256 g = _mm256_min_ps(high, LoadFirst(gate + i, n - i));
    const __m256 u = _mm256_max_ps(low, _mm256_min_ps(high, LoadFirst(up + i, n - i)));
    const __m256 denominator = _mm256_add_ps(one, Exp(_mm256_mul_ps(_mm256_set1_ps(-alpha), g)));
    StoreFirstBf16(out + i, n - i, _mm256_mul_ps(_mm256_div_ps(g, denominator), _mm256_add_ps(u, one)));
  }
}

void ToBf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; i += kLanes) StoreFirstBf16(out + i, n - i, LoadFirst(x + i, n - i));
}

void Axpy(float a, const float* x, int64_t n, float* y) {
  const __m256 factor = _mm256_set1_ps(a);
  for (int64_t i = 0; i < n; i += kLanes) {
    StoreFirst(y + i, n - i, _mm256_fmadd_ps(factor, LoadFirst(x + i, n - i), LoadFirst(y + i, n - i)));
  }
}

void Axpby(float a, const float* x, float b, int64_t n, float* y) {
  const __m256 x_factor = _mm256_set1_ps(a);
  const __m256 y_factor = _mm256_set1_ps(b);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __m256 scaled = _mm256_mul_ps(y_factor, LoadFirst(y + i, n - i));
    StoreFirst(y + i, n - i, _mm256_fmadd_ps(x_factor, LoadFirst(x + i, n - i), scaled));
  }
}

}  // namespace moestro::avx2
