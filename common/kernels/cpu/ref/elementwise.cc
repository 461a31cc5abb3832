#include <algorithm>
#include <cmath>

#include "common/kernels/cpu/ref/kernels.h"

namespace moestro::ref {
namespace {

// One accumulator per lane, so that long sums lose less precision and the compiler may use vectors; lanes are added in
// order.
constexpr int64_t kLanes = 16;

// The sum of term(0), term(1), ..., term(n - 1).
template <typename Term>
float Sum(int64_t n, const Term& term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

float Dot(const float* a, const float* b, int64_t n) {
  return Sum(n, [a, b](int64_t i) { return a[i] * b[i]; });
}

}  // namespace

void RouterLogits(const float* w, int64_t experts, int64_t hidden, const float* x, float* out) {
  for (int64_t expert = 0; expert < experts; ++expert) out[expert] = Dot(w + expert * hidden, x, hidden);
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16) {
  const float inverse = 1.0f / std::sqrt(Dot(x, x, n) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    const float value = x[i] * inverse * weight[i];
    if (out != nullptr) out[i] = value;
    if (out_bf16 != nullptr) out_bf16[i] = moestro::ToBf16(value);
  }
}

void LayerNorm(const float* x, const float* weight, int64_t n, float eps, float* out, uint16_t* out_bf16) {
  const float mean = Sum(n, [x](int64_t i) { return x[i]; }) / static_cast<float>(n);
  const float squares = Sum(n, [x, mean](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    const float value = (x[i] - mean) * inverse * weight[i];
    if (out != nullptr) out[i] = value;
    if (out_bf16 != nullptr) out_bf16[i] = moestro::ToBf16(value);
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = moestro::ToBf16(gate[i] / (1.0f + std::exp(-gate[i])) * up[i]);
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float limit, float alpha, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], limit), u = std::clamp(up[i], -limit, limit);
    out[i] = moestro::ToBf16(g / (1.0f + std::exp(-alpha * g)) * (u + 1.0f));
  }
}

void ToBf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = moestro::ToBf16(x[i]);
}

void Axpy(float a, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(a, x[i], y[i]);
}

void Axpby(float a, const float* x, float b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(a, x[i], b * y[i]);
}

}  // namespace moestro::ref
