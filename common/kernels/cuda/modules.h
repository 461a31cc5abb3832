// The code of all kernels.
#pragma once

#include "common/kernels/cuda/stream.h"

namespace moestro::cuda {

// Loads it for the current device. A GPU of which the build has no machine code takes seconds for each source, because
// the driver compiles it, and would do so at the first launch of one of its kernels otherwise: within a request.
LaunchResult LoadModules();

}  // namespace moestro::cuda
