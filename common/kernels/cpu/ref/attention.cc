#include <algorithm>
#include <cmath>

#include "common/kernels/cpu/ref/kernels.h"

namespace moestro::ref {
namespace {

float ToFloat(float value) { return value; }
float ToFloat(uint16_t bf16) { return FromBf16(bf16); }

// Online softmax: scores of the block, its maximum, rescale what was summed before, add the block in token order.
template <typename T>
void Attend(const AttentionBlock& block, const T* keys, int64_t key_stride, const T* values, int64_t value_stride) {
  float weights[kMaxAttentionBlock];
  float new_max = *block.max_score;
  for (int64_t t = 0; t < block.tokens; ++t) {
    const T* key = keys + t * key_stride;
    float score = 0;
    for (int64_t i = 0; i < block.key_dim; ++i) score += block.query[i] * ToFloat(key[i]);
    weights[t] = score;
    new_max = std::max(new_max, score);
  }

  const float rescale = std::exp(*block.max_score - new_max);
  *block.max_score = new_max;
  *block.sum *= rescale;
  for (int64_t i = 0; i < block.value_dim; ++i) block.out[i] *= rescale;

  for (int64_t t = 0; t < block.tokens; ++t) {
    const T* value = values + t * value_stride;
    weights[t] = std::exp(weights[t] - new_max);
    *block.sum += weights[t];
    for (int64_t i = 0; i < block.value_dim; ++i) block.out[i] += weights[t] * ToFloat(value[i]);
  }
}

}  // namespace

void AttendBf16(const AttentionBlock& block, const uint16_t* keys, const uint16_t* values, int64_t stride) {
  Attend(block, keys, stride, values, stride);
}

void AttendF32(const AttentionBlock& block, const float* keys, int64_t key_stride, const float* values,
               int64_t value_stride) {
  Attend(block, keys, key_stride, values, value_stride);
}

}  // namespace moestro::ref
