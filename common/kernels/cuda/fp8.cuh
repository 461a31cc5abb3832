// E4M3 codes to BF16 values in registers: exact for all 256 codes, subnormals and NaN included.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/ptx.cuh"

namespace moestro::cuda {

// Codes kFirst and kFirst + 1 of four, times 2^-120. The result has the first in its lower half.
//
// A code's exponent and mantissa, moved to BF16's positions, with the sign, are its value times 2^-120, the difference
// of the biases. As a signed number of 16 bits a code has its sign in all upper bits, so one shift and one mask move
// both. That holds for subnormals too, which become BF16 subnormals.
template <int kFirst>
__device__ __forceinline__ uint32_t MoveE4M3(uint32_t codes) {
  return (SignedBytes<kFirst>(codes) << 4) & 0x87f087f0u;
}

// What was moved, times 2^120. A NaN code becomes 480, which no other does. -0 as the third operand keeps the sign of a
// zero.
__device__ __forceinline__ uint32_t ScaleE4M3(uint32_t moved) { return FmaBf16x2(moved, 0x7b807b80u, 0x80008000u); }

// Whether a NaN code is among what was moved, or is the greatest magnitude of that, with any sign.
__device__ __forceinline__ bool HasNanE4M3(uint32_t moved) {
  return (((moved & 0x7fff7fffu) + 0x78107810u) & 0x80008000u) != 0;
}

// The same of four codes, in two instructions: the addition carries into the sign of a NaN code, and of one next to it.
// So a result that has none of the four signs is exact; one that has some is not.
__device__ __forceinline__ uint32_t MayBeNanE4M3(uint32_t codes) { return codes ^ (codes + 0x01010101u); }
constexpr uint32_t kSignsE4M3 = 0x80808080u;
// Exact.
__device__ __forceinline__ uint32_t AreNanE4M3(uint32_t codes) {
  return ((codes & ~kSignsE4M3) + 0x01010101u) & kSignsE4M3;
}

}  // namespace moestro::cuda
