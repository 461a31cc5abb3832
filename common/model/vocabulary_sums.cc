#include "common/model/vocabulary_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace moestro::model {
namespace {

// Vectors of the baseline CPU, by GCC's extension: plain loops over these functions stay scalar, and five times as
// slow.
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));
constexpr size_t kWidth = 4;
// Independent sums, so that additions do not wait for each other.
constexpr size_t kSums = 4;
constexpr size_t kStep = kSums * kWidth;
constexpr size_t kTermsInF32 = 64;  // of each of a vector's numbers, before F64 adds them

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// exp(x) for x <= 0: 2^n exp(r), |r| <= ln(2) / 2, by the polynomial of six terms and one. Below -87, where results
// would be subnormal, exp(-87).
Floats Exp(Floats x) {
  constexpr float kLeast = -87;
  constexpr float kLog2E = 1.44269504f;
  // ln(2) in two parts: n times the first is exact.
  constexpr float kLn2 = 0.693145752f, kLn2Rest = 1.42860677e-6f;
  constexpr float kRounder = 0x1.8p23f;  // added, it leaves whole numbers in the lowest bits
  x = x > kLeast ? x : Floats{} + kLeast;
  const Floats rounded = x * kLog2E + kRounder;
  const Floats n = rounded - kRounder;
  const Floats r = (x - n * kLn2) - n * kLn2Rest;
  Floats p = r * (1.0f / 720) + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  Ints exponent;
  std::memcpy(&exponent, &rounded, sizeof exponent);
  exponent = (exponent << 23) + 0x3f800000;  // of 2^n, with the exponent's bias
  Floats power;
  std::memcpy(&power, &exponent, sizeof power);
  return p * power;
}

Floats Load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

double Total(const Floats& values) {
  return (static_cast<double>(values[0]) + values[1]) + (static_cast<double>(values[2]) + values[3]);
}

}  // namespace

double SumOfExp(std::span<const float> logits, float maximum, float temperature) {
  const size_t whole = logits.size() / kStep * kStep;
  double sum = 0;
  size_t i = 0;
  while (i < whole) {
    const size_t end = std::min(whole, i + kTermsInF32 / kSums * kStep);
    Floats sums[kSums] = {};
    for (; i < end; i += kStep) {
      for (size_t s = 0; s < kSums; ++s) sums[s] += Exp((Load(&logits[i + s * kWidth]) - maximum) / temperature);
    }
    sum += Total((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  for (; i < logits.size(); ++i) sum += Exp(Floats{} + (logits[i] - maximum) / temperature)[0];
  return sum;
}

bool HasNan(std::span<const float> logits) {
  unsigned found = 0;
  for (const float logit : logits) found |= static_cast<unsigned>(logit != logit);
  return found != 0;
}

std::optional<int32_t> LargestLogit(std::span<const float> logits) {
  if (HasNan(logits)) return std::nullopt;
  const size_t whole = logits.size() / kStep * kStep;
  Floats most[kSums];
  for (Floats& values : most) values = Floats{} + kMinusInfinity;
  for (size_t i = 0; i < whole; i += kStep) {
    for (size_t s = 0; s < kSums; ++s) {
      const Floats values = Load(&logits[i + s * kWidth]);
      most[s] = values > most[s] ? values : most[s];
    }
  }
  float largest = kMinusInfinity;
  for (const Floats& values : most) {
    for (size_t lane = 0; lane < kWidth; ++lane) largest = std::max(largest, values[lane]);
  }
  for (size_t i = whole; i < logits.size(); ++i) largest = std::max(largest, logits[i]);
  if (!std::isfinite(largest)) return std::nullopt;
  return static_cast<int32_t>(std::ranges::find(logits, largest) - logits.begin());
}

}  // namespace moestro::model
