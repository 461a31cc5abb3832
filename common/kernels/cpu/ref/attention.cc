#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/kernels/cpu/ref/kernels.h"

namespace moestro::ref {
namespace {

// Index of element (row, col) in a packed BF16 matrix of `cols` columns.
int64_t PackedIndex(int64_t cols, int64_t row, int64_t col) {
  return row / kRowGroup * kRowGroup * PaddedCols(cols) + col / 2 * kRowGroup * 2 + row % kRowGroup * 2 + col % 2;
}

}  // namespace

void PackKeys(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, uint8_t* keys) {
  auto* out = reinterpret_cast<uint16_t*>(keys);
  std::memset(keys, 0, static_cast<size_t>(PackedBytes(DType::kBF16, kAttentionBlock, dim)));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < dim; ++i) out[PackedIndex(dim, t, i)] = kv[t * stride + i];
  }
}

void PackValues(const uint16_t* kv, int64_t stride, int64_t tokens, int64_t dim, int64_t first, int64_t columns,
                uint8_t* values) {
  auto* out = reinterpret_cast<uint16_t*>(values);
  for (int64_t t = 0; t < kAttentionBlock; ++t) {
    for (int64_t i = 0; i < PaddedRows(dim); ++i) {
      out[PackedIndex(columns, i, first + t)] = t < tokens && i < dim ? kv[t * stride + i] : 0;
    }
  }
}

float SoftmaxStep(const float* scores, int64_t tokens, int64_t columns, float scale, SoftmaxState* state,
                  uint16_t* weights) {
  float new_max = state->max_score;
  for (int64_t t = 0; t < tokens; ++t) new_max = std::max(new_max, scale * scores[t]);
  const float rescale = std::exp(state->max_score - new_max);
  float sum = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    weights[t] = moestro::ToBf16(std::exp(scale * scores[t] - new_max));
    sum += FromBf16(weights[t]);
  }
  std::fill(weights + tokens, weights + columns, uint16_t{0});
  state->max_score = new_max;
  state->sum = std::fma(state->sum, rescale, sum);
  return rescale;
}

}  // namespace moestro::ref
