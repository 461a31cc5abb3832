// From 16-byte pieces of packed FP8, I8, BF16 and F16 weights to fragments of an mma, and to products.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/block_codes.cuh"
#include "common/kernels/cuda/f16.cuh"
#include "common/kernels/cuda/fp8.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/reduce.cuh"
#include "common/tensor/dtype.h"

namespace moestro::cuda {

constexpr int kStepBytes = 256;  // of the packed layout: 64 rows x 4 FP8 or 2 BF16 inputs

// Pieces of consecutive steps, 4 rows each, that make 4 inputs.
template <DType kType>
constexpr int kPieces = kType == DType::kF8E4M3 || kType == DType::kI8 ? 1 : 2;

// Steps of a row of so many inputs, as the packed layout pads it.
template <DType kType>
__device__ __forceinline__ int64_t StepsOf(int64_t cols) {
  if constexpr (kType == DType::kI8) return (cols + 63) / 64 * 16;
  return (cols + 3) / 4 * kPieces<kType>;
}

// Rows 4g .. 4g + 3 of 32, as rows g and g + 8 of two A fragments, for 4 inputs. FP8: times 2^-120, which AddProducts
// makes good.
template <DType kType>
__device__ __forceinline__ void ToFragments(const uint4 (&pieces)[kPieces<kType>], uint32_t (&a)[2][4]) {
  if constexpr (kType == DType::kI8) {
    const uint32_t rows[4] = {pieces[0].x, pieces[0].y, pieces[0].z, pieces[0].w};  // inputs 0 2 1 3 of each
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      a[row / 2][row % 2] = ExpandSigned(rows[row]);
      a[row / 2][row % 2 + 2] = ExpandSigned(rows[row] >> 8);
    }
  } else if constexpr (kType != DType::kF8E4M3) {
    a[0][0] = pieces[0].x;
    a[0][1] = pieces[0].y;
    a[0][2] = pieces[1].x;
    a[0][3] = pieces[1].y;
    a[1][0] = pieces[0].z;
    a[1][1] = pieces[0].w;
    a[1][2] = pieces[1].z;
    a[1][3] = pieces[1].w;
  } else {
    const uint4 codes = pieces[0];
    // x: rows 0, 1 and y: rows 2, 3 for inputs 0, 1; z, w: the same rows for inputs 2, 3. Two bytes a row.
    const uint32_t words[4] = {codes.x, codes.z, codes.y, codes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i / 2][i % 2 * 2] = MoveE4M3<0>(words[i]);
      a[i / 2][i % 2 * 2 + 1] = MoveE4M3<2>(words[i]);
    }
  }
}

// Adds the products of 32 rows x 4 inputs of each lane, the first (u 0) or last of its inputs in b. F16 weights become
// two BF16 numbers. A NaN code of FP8 becomes 480: kernels look for such codes beside.
template <DType kType, int kTokenFragments>
__device__ __forceinline__ void AddProducts(uint32_t (&a)[2][4], const uint4 (&b)[kTokenFragments], int u,
                                            float (&sums)[2][kTokenFragments][4]) {
  [[maybe_unused]] uint32_t rest[2][4];
  if constexpr (kType == DType::kF16) {
#pragma unroll
    for (int i = 0; i < 8; ++i) SplitF16(a[i / 4][i % 4], &a[i / 4][i % 4], &rest[i / 4][i % 4]);
  }
  if constexpr (kType == DType::kF8E4M3) {
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = ScaleE4M3(a[i / 4][i % 4]);
  }
#pragma unroll
  for (int n = 0; n < kTokenFragments; ++n) {
    const uint32_t pair[2] = {u == 0 ? b[n].x : b[n].z, u == 0 ? b[n].y : b[n].w};
    MmaBf16(sums[0][n], a[0], pair);
    MmaBf16(sums[1][n], a[1], pair);
    if constexpr (kType == DType::kF16) {
      MmaBf16(sums[0][n], rest[0], pair);
      MmaBf16(sums[1][n], rest[1], pair);
    }
  }
}

}  // namespace moestro::cuda
