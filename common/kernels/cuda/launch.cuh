// Launches a kernel, also in the emulated build: Launch("name", kernel, grid, block, bytes of dynamic shared memory,
// stream, arguments...). Where the GPU can, it starts before the kernel before it in the stream has ended
// (programmatic dependent launch), as every kernel begins with BeginKernel. MOESTRO_PDL=off in the environment of a
// process keeps its kernels from that: no result changes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

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

// Whether kernels wait by themselves. Asked once of each kernel and device, since that takes as long as a launch.
struct WaitingKernels {
  std::mutex mutex;
  std::map<std::pair<const void*, int>, bool> waits;  // guarded by mutex
};
inline WaitingKernels waiting_kernels;

// Whether the kernel's code that the current device has loaded waits in BeginKernel: code for compute capability 9.0.
// The device does not tell: it also runs the PTX of older ones, which does not wait.
inline bool Waits(const void* kernel) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  std::lock_guard lock(waiting_kernels.mutex);
  const auto [known, is_new] = waiting_kernels.waits.try_emplace({kernel, device}, false);
  if (is_new) {
    cudaFuncAttributes code = {};
    known->second = cudaFuncGetAttributes(&code, kernel) == cudaSuccess && code.ptxVersion >= 90;
  }
  return known->second;
}

inline const bool launches_overlap = [] {
  const char* const setting = std::getenv("MOESTRO_PDL");
  return setting == nullptr || std::string_view(setting) != "off";
}();

// Whether the kernel may be started before the one before it in the stream has ended.
inline bool StartsEarly(const void* kernel, Stream stream) {
  return launches_overlap && stream != nullptr && Waits(kernel);
}

// A source of kernels, whose code the driver loads together (modules.h).
struct Module {
  explicit Module(void (*its_kernel)()) : kernel(reinterpret_cast<const void*>(its_kernel)), next(first) {
    first = this;
  }

  const void* const kernel;
  const Module* const next;
  inline static const Module* first = nullptr;
};

// Each source that includes this has its own of both, and so is on the list. The kernel is never launched.
namespace {
__global__ void OfThisModule() {}
const Module this_module(OfThisModule);
}  // namespace

}  // namespace moestro::cuda

#ifndef __CUDACC__
#include <launch_model.h>
#else

namespace moestro::cuda {

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
  config.numAttrs = StartsEarly(reinterpret_cast<const void*>(kernel), stream) ? 1 : 0;
  return {static_cast<int>(cudaLaunchKernelEx(&config, kernel, arguments...))};
}

}  // namespace moestro::cuda
#endif
