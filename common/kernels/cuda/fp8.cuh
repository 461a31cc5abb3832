// E4M3 codes to BF16 values in registers: exact for all 256 codes, subnormals and NaN included.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/ptx.cuh"

namespace moestro::cuda {

// Two codes: code 0 in bits 8..15, code 1 in bits 24..31, the other bits 0. The result has code 0 in its lower half.
//
// A code's exponent and mantissa, moved to BF16's positions, with the sign, are its value times 2^-120, the difference
// of the biases. That holds for subnormals too, which become BF16 subnormals. One multiplication by 2^120 compensates;
// -0 as the third operand keeps the sign of a zero.
__device__ __forceinline__ uint32_t ExpandE4M3(uint32_t codes) {
  const uint32_t tiny = (codes & 0x80008000u) | ((codes >> 4) & 0x07f007f0u);
  return FmaBf16x2(tiny, 0x7b807b80u, 0x80008000u);
}

// ExpandE4M3 turns a NaN code into 480; this makes it NaN.
__device__ __forceinline__ uint32_t PatchNanE4M3(uint32_t codes, uint32_t expanded) {
  if ((codes & 0x00007f00u) == 0x00007f00u) expanded |= 0x00007fc0u;
  if ((codes & 0x7f000000u) == 0x7f000000u) expanded |= 0x7fc00000u;
  return expanded;
}

}  // namespace moestro::cuda
