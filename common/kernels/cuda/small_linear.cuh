// Tiles of at most kSmallTile tokens: small_linear.cu.
#pragma once

#include "common/kernels/cuda/linear_tile.cuh"

namespace moestro::cuda {

// p: of tiles of kSmallTile tokens, with weights in FP8, BF16 or F16.
LaunchResult LaunchSmallLinear(const LinearParams& p, bool gate_up, Stream stream);

}  // namespace moestro::cuda
