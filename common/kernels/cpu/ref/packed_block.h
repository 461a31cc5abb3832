// Chains of the reference, and formats of blocks: one sub-block of one tile, decoded code by code as block_format.h
// describes it.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/tensor/packed_matrix.h"

namespace moestro::ref {

// Inputs that are summed before they are scaled, for 16 rows.
struct Chain {
  int64_t cols = 0;
  float weights[kScaleBlock][kTileRows];  // [column][row], before scaling
  float scales[kTileRows];
  bool has_mins = false;
  float mins[kTileRows];  // of the scaled weights
};

// sums[r] = sum_c weights[c][r] * input(c), and the sum of input(c), all in column order. 16 rows side by side are four
// vectors of baseline SSE2: GCC 12 does not find them by itself where this is inlined.
template <typename Input>
float SumChain(const Chain& chain, const Input& input, float (&sums)[kTileRows]) {
  using FourRows [[gnu::vector_size(16)]] = float;
  FourRows vectors[kTileRows / 4] = {};
  float inputs = 0;
  for (int64_t col = 0; col < chain.cols; ++col) {
    const float value = input(col);
    inputs += value;
    for (int64_t i = 0; i < kTileRows / 4; ++i) {
      FourRows weights;
      std::memcpy(&weights, &chain.weights[col][4 * i], sizeof weights);
      vectors[i] += weights * value;
    }
  }
  std::memcpy(sums, vectors, sizeof sums);
  return inputs;
}

// The sub-block that begins at column `col`, in a row group's tile; `type` is a format of blocks.
void DecodeSubBlock(DType type, const uint8_t* group, int64_t tile, int64_t col, Chain& chain);

}  // namespace moestro::ref
