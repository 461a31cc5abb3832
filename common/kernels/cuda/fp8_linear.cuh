// `linear` with FP8 weights and inputs in FP8 codes. Called by linear.cu, which has checked the parameters.
#pragma once

#include "common/kernels/cuda/linear_tile.cuh"

namespace moestro::cuda {

// REQUIRES: params.shape.codes is set; weights in FP8.
LaunchResult LaunchFp8Linear(LinearParams params, bool gate_up, int tile_tokens, Stream stream);

}  // namespace moestro::cuda
