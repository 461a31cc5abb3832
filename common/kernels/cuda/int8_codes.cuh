// Codes of rows of inputs (int8_inputs.h), by blocks of kThreads threads.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/reduce.cuh"

namespace moestro::cuda {

// Inputs come in fours, as BF16: two words.

__device__ __forceinline__ uint32_t Greater(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Magnitudes of BF16 compare as integers; infinities and NaN are the greatest.
__device__ __forceinline__ uint32_t GreatestMagnitude(uint2 four) {
  return Greater(Greater(four.x & 0x7fffu, four.x >> 16 & 0x7fffu), Greater(four.y & 0x7fffu, four.y >> 16 & 0x7fffu));
}

// The greatest of all threads' values, in all of them; `shared` holds kThreads / 32 words. All threads must call it.
template <int kThreads>
__device__ __forceinline__ uint32_t BlockGreatest(uint32_t value, uint32_t* shared) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value = Greater(value, __shfl_xor_sync(kAllLanes, value, lanes));
  if (thread % 32 == 0) shared[thread / 32] = value;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) value = Greater(value, shared[warp]);
  return value;
}

// Of a row whose greatest magnitude is known.
struct RowCodes {
  float scale;
  bool has_codes;  // otherwise all are 0: the row is zeros, or its scale is not finite

  // The code of an input in the lowest byte: below 2^22, v + 1.5 * 2^23 has v there, rounded to nearest even.
  __device__ __forceinline__ uint32_t Of(uint32_t bf16) const {
    return __float_as_uint(__uint_as_float(bf16 << 16) / scale + 12582912.0f) & 0xffu;
  }
  // In the order 0 2 1 3 of packed weights.
  __device__ __forceinline__ uint32_t Of(uint2 four) const {
    if (!has_codes) return 0;
    return Of(four.x & 0xffffu) | Of(four.y & 0xffffu) << 8 | Of(four.x >> 16) << 16 | Of(four.y >> 16) << 24;
  }
};

__device__ __forceinline__ RowCodes CodesOf(uint32_t greatest) {
  return {__uint_as_float(greatest << 16) / 127.0f, greatest != 0 && greatest < 0x7f80u};
}

}  // namespace moestro::cuda
