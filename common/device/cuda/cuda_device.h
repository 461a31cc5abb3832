// An NVIDIA GPU as a device. Builds without CUDA have this header, but not the implementation.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/device/device.h"

namespace moestro::device {

struct CudaDeviceOptions {
  int ordinal = 0;           // CUDA's index among the devices in CUDA_VISIBLE_DEVICES
  int64_t memory_bytes = 0;  // limit of allocations; 0: all free memory, less what the driver needs
  // Host memory to be registered: space for its page tables is left to the driver.
  int64_t registered_bytes = 0;
};

// UNAVAILABLE without any GPU, or without a driver new enough for the runtime: there may be one a moment later.
// NOT_FOUND if only other GPUs exist. UNIMPLEMENTED if the GPU is too old for the kernels, and in builds without CUDA.
// RESOURCE_EXHAUSTED if less memory is free than wanted. Each error names the remedy.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

// Whether the GPU has products of FP8 as instructions of mma.sync: compute capability 8.9, or 12.0 and later. Makes it
// the thread's current one. Errors of OpenCudaDevice.
absl::StatusOr<bool> CudaMultipliesFp8(int ordinal);

}  // namespace moestro::device
