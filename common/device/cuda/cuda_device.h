// An NVIDIA GPU as a device. Builds without CUDA have the header, and not what it declares.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/device/device.h"

namespace moestro::device {

struct CudaDeviceOptions {
  int ordinal = 0;           // as CUDA counts those that CUDA_VISIBLE_DEVICES shows
  int64_t memory_bytes = 0;  // that may be allocated; 0: all that is free, but for what the driver needs of it
  // Of host memory that will be registered: room for its page tables is left to the driver.
  int64_t registered_bytes = 0;
};

// UNAVAILABLE if there is no GPU at all, or no driver that is new enough for the runtime: there may be one a moment
// later; NOT_FOUND if there are others, but not this one; UNIMPLEMENTED if it is too old for the kernels, and in builds
// without CUDA; RESOURCE_EXHAUSTED if it has less memory free than wanted. Each says what to do about it.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

}  // namespace moestro::device
