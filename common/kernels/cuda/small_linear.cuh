// Tiles of at most kSmallTile tokens: small_linear.cu. A block computes its rows by kSmallWarps warps, whose sums meet
// in shared memory; at the end a thread has four rows of a token.
#pragma once

#include "common/kernels/cuda/linear_tile.cuh"

namespace moestro::cuda {

constexpr int kSmallWarps = 8;

// Rotates four outputs of a token, which are rotated all or none.
__device__ __forceinline__ void RotateQuad(const HeadRotation& rotation, int64_t token, int64_t row,
                                           float (&values)[4]) {
  const int in_head = static_cast<int>(static_cast<uint32_t>(row) % static_cast<uint32_t>(rotation.head_dim));
  const int element = in_head - static_cast<int>(rotation.first);
  if (element < 0 || element >= rotation.dims) return;
  const int64_t pair = token * (rotation.dims / 2) + element / 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float cosine = rotation.cosine[pair + i], sine = rotation.sine[pair + i];
    const float a = values[2 * i], b = values[2 * i + 1];
    values[2 * i] = a * cosine - b * sine;
    values[2 * i + 1] = a * sine + b * cosine;
  }
}

// Bias, activation, rotation and store of four rows of a token.
template <typename T>
__device__ __forceinline__ void FinishQuad(const LinearParams& p, const BlockTile& tile, int token, int quad,
                                           float (&totals)[T::kMatrices][4]) {
  const int64_t row = tile.row_tile * T::kOutputRows + 4 * quad;
  const int valid = static_cast<int>(min(int64_t{4}, p.shape.rows - row));
  if (valid <= 0) return;
#pragma unroll
  for (int m = 0; m < T::kMatrices; ++m) {
    const float* const bias = MatrixOf<T>(p, tile, m).bias;
    if (bias == nullptr) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) totals[m][i] += i < valid ? bias[row + i] : 0.0f;
  }
  if constexpr (T::kGateUp) {
#pragma unroll
    for (int i = 0; i < 4; ++i) totals[0][i] = Activated(p.shape, totals[0][i], totals[1][i]);
  }
  if constexpr (!T::kGateUp) {
    if (p.rotation.cosine != nullptr) RotateQuad(p.rotation, tile.first_token + token, row, totals[0]);
  }
  StoreOutputs(p, tile.first_token + token, row, valid, totals[0]);
}

// p: of tiles of kSmallTile tokens, with weights in FP8, BF16, F16 or I8.
LaunchResult LaunchSmallLinear(const LinearParams& p, bool gate_up, Stream stream);
// Two single matrices of one type for the same tokens, in one launch.
LaunchResult LaunchSmallPair(const LinearParams& first, const LinearParams& second, Stream stream);

}  // namespace moestro::cuda
