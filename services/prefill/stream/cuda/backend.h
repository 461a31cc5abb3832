// Whether there is CUDA: the one place that knows. backend.cc is linked where there is, no_backend.cc where there is
// not.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/device/cuda/cuda_device.h"
#include "common/model/binding.h"
#include "services/prefill/stream/compute.h"

namespace moestro {

struct CudaBackend {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<StreamCompute> compute;  // on the device
};

// Spec and weights outlive it. Errors of OpenCudaDevice and CudaCompute::CheckSupported, and what a first kernel fails
// with; UNIMPLEMENTED in builds without CUDA.
absl::StatusOr<CudaBackend> OpenCudaBackend(const device::CudaDeviceOptions& options, const ModelSpec& spec,
                                            const ModelWeights& weights);

}  // namespace moestro
