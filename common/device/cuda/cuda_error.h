// Errors of the CUDA runtime as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace moestro::device {

// "what: cudaErrorName (its text); what to do about it".
absl::Status CudaStatus(cudaError_t error, std::string_view what);

}  // namespace moestro::device
