// `linear` with weights in formats of blocks (common/tensor/block_format.h). Called by linear.cu, which has checked the
// parameters.
#pragma once

#include "common/kernels/cuda/linear_tile.cuh"

namespace moestro::cuda {

// REQUIRES: IsBlockFormat(params.shape.dtype).
LaunchResult LaunchBlockLinear(const LinearParams& params, bool gate_up, int tile_tokens, Stream stream);

}  // namespace moestro::cuda
