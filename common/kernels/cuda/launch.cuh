// Launches a kernel, also in the emulated build: Launch("name", kernel, grid, block, bytes of dynamic shared memory,
// stream, arguments...). Where the GPU can, it starts before the kernel before it in the stream has ended
// (programmatic dependent launch), as every kernel begins with BeginKernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// Of the current device; 1 if that is unknown.
inline int64_t Multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess ? count : 1;
}

// Shared memory of a block: what the smallest of these GPUs (compute capability 8.6, 8.9, 12.0) gives one.
inline constexpr int kMaxSharedBytes = 99 << 10;
// The same of compute capability 9.0.
inline constexpr int kMaxSharedBytes90 = 227 << 10;

}  // namespace moestro::cuda

#ifndef __CUDACC__
#include <launch_model.h>
#else

namespace moestro::cuda {

// Whether kernels wait by themselves: compute capability 9.0.
inline bool KernelsWait() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9;
}

template <typename... Params, typename... Args>
LaunchResult Launch(const char*, void (*kernel)(Params...), dim3 grid, dim3 block, int64_t shared_bytes, Stream stream,
                    const Args&... arguments) {
  constexpr int64_t kWithoutAsking = 48 * 1024;  // of shared memory
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return {static_cast<int>(error)};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = stream != nullptr && KernelsWait() ? 1 : 0;
  return {static_cast<int>(cudaLaunchKernelEx(&config, kernel, arguments...))};
}

}  // namespace moestro::cuda
#endif
