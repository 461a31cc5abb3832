// CUDA runtime errors as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace moestro::device {

// "what: cudaErrorName (its text); remedy".
absl::Status CudaStatus(cudaError_t error, std::string_view what);

}  // namespace moestro::device
