// F16 in registers: numbers to F32, and weights to a sum of two BF16 numbers, both exact.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/ptx.cuh"

namespace moestro::cuda {

// A finite F16 in the lower half, subnormals included: its exponent and mantissa, moved to F32's positions, are its
// value times 2^-112, the difference of the biases.
__device__ __forceinline__ float F16ToFloat(uint32_t bits) {
  const float magnitude = __uint_as_float((bits & 0x7fffu) << 13) * 0x1p112f;
  return __uint_as_float(__float_as_uint(magnitude) | (bits & 0x8000u) << 16);
}

// Two F16 numbers as two pairs of BF16: upper + rest. `upper` has the leading 8 of a number's 11 bits, `rest` has the
// last 3. Subnormals are exact too. An infinity or NaN is one in `upper`, with a finite rest.
//
// Exponent and the leading bits of the mantissa, moved to BF16's positions, are `upper` times 2^-112. The last bits at
// the end of BF16's mantissa, below the same exponent, count 2^3 times as much as in F16; what the exponent's implicit
// bit adds is subtracted again.
__device__ __forceinline__ void SplitF16(uint32_t pair, uint32_t* upper, uint32_t* rest) {
  const uint32_t sign = pair & 0x80008000u, exponent = pair >> 3 & 0x0f800f80u;
  const uint32_t leading = FmaBf16x2(sign | (pair >> 3 & 0x0fff0fffu), 0x77807780u, 0x80008000u);  // times 2^112
  const uint32_t implicit = FmaBf16x2((sign ^ 0x80008000u) | exponent, 0x76007600u, 0x80008000u);  // times -2^109
  *rest = FmaBf16x2(sign | exponent | (pair & 0x00070007u), 0x76007600u, implicit);
  *upper = leading;
  if ((pair & 0x7c00u) == 0x7c00u) *upper |= (pair & 0x3ffu) == 0 ? 0x7f80u : 0x7fc0u;
  if ((pair & 0x7c000000u) == 0x7c000000u) *upper |= (pair & 0x3ff0000u) == 0 ? 0x7f800000u : 0x7fc00000u;
}

}  // namespace moestro::cuda
