// The activation of gated MLPs, and the gate of a shared expert.
#pragma once

#include <cuda_runtime.h>

namespace moestro::cuda {

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ float SiluMul(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

}  // namespace moestro::cuda
