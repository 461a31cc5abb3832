#include <cuda_runtime.h>

#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "tests/cuda/device.h"
#include "tests/cuda/gpu/ceilings.h"

namespace moestro::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kFp8>
__global__ void __launch_bounds__(kThreads) MmaProbeKernel(int rounds, float* out) {
  BeginKernel();
  float sums[8][4] = {};
  const uint32_t a[4] = {threadIdx.x, 0x3f803f80u, 0, 0x3f803f80u}, b[2] = {0x3f803f80u, threadIdx.x};
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (kFp8) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
        MmaE4M3(sums[i], a, b);
#endif
      } else {
        MmaBf16(sums[i], a, b);
      }
    }
  }
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

}  // namespace

LaunchResult LaunchMmaProbe(bool fp8, int blocks, int rounds, float* out) {
  return Launch("mma probe", fp8 ? MmaProbeKernel<true> : MmaProbeKernel<false>, dim3(static_cast<unsigned>(blocks)),
                dim3(kThreads), 0, DeviceStream(), rounds, out);
}

}  // namespace moestro::cuda
