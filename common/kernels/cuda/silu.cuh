// The activation of gated MLPs.
#pragma once

#include <cuda_runtime.h>

namespace moestro::cuda {

__device__ __forceinline__ float SiluMul(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

}  // namespace moestro::cuda
