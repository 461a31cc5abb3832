// CUDA runtime errors as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace moestro::device {

// "what: cudaErrorName (its text); remedy". Of errors after which the driver refuses this process everything, it says
// so.
absl::Status CudaStatus(cudaError_t error, std::string_view what);

}  // namespace moestro::device
