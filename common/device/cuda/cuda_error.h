// Errors of the CUDA runtime as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"

namespace moestro::device {

// "what: cudaErrorName (its text); what to do about it".
absl::Status CudaStatus(cudaError_t error, const std::string& what);

}  // namespace moestro::device
