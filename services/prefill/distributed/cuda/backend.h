// Ranks that are GPUs: whether there is CUDA, as services/prefill/stream/cuda/backend.h. backend.cc is linked where
// there is, no_backend.cc where there is not.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/model/binding.h"
#include "services/prefill/distributed/rank_kernels.h"

namespace moestro {

// The device is one of OpenCudaBackend's. All outlive the result. Errors of CudaRankKernels::CheckSupported;
// UNIMPLEMENTED in builds without CUDA.
absl::StatusOr<std::unique_ptr<RankKernels>> NewCudaRankKernels(device::Device& device, const ModelSpec& spec,
                                                                const ModelWeights& weights);

}  // namespace moestro
