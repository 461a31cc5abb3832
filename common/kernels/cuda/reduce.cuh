// Sums over a warp and a block, in an order that depends only on the number of threads.
#pragma once

#include <cuda_runtime.h>

namespace moestro::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// The same in all lanes.
__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
}

// The same in all threads; kThreads is the block's size, `shared` holds kThreads / 32 elements. All threads must call
// it.
template <int kThreads>
__device__ __forceinline__ float BlockSum(float value, float* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  value = WarpSum(value);
  if (thread % 32 == 0) shared[thread / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += shared[warp];
  __syncthreads();  // `shared` may be reused
  return sum;
}

}  // namespace moestro::cuda
