// The activations of gated MLPs, the gate of a shared expert, and the share of attention's sinks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace moestro::cuda {

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// What is left of the attention to tokens beside that to a head's sink. log_sum: the logarithm of the sum of exp(score)
// over the tokens. Null: there are no sinks.
__device__ __forceinline__ float ShareOfTokens(const float* sinks, int64_t head, float log_sum) {
  return sinks == nullptr ? 1.0f : Sigmoid(log_sum - sinks[head]);
}

// As the CPUs' clamped_swiglu. NaN passes.
__device__ __forceinline__ float ClampedSwiglu(float gate, float up, float limit, float alpha) {
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  return g / (1.0f + expf(-alpha * g)) * (u + 1.0f);
}

__device__ __forceinline__ float SiluMul(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

}  // namespace moestro::cuda
