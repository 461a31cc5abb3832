// `linear` with FP8 weights by products of warp groups: on compute capability 9.0, in builds for sm_90a. Called by
// linear.cu, which has checked the parameters.
#pragma once

#include "common/kernels/cuda/linear_tile.cuh"

namespace moestro::cuda {

// Inputs in FP8 codes, or in BF16 for tiles of kLargeTile. REQUIRES: weights in FP8; HasWgmma().
LaunchResult LaunchWgmmaLinear(LinearParams params, bool gate_up, int tile_tokens, Stream stream);

}  // namespace moestro::cuda
