// `linear` of I8 weights and coded inputs (int8_inputs.h). Called by linear.cu, which has checked the parameters.
#pragma once

#include "common/kernels/cuda/linear_tile.cuh"

namespace moestro::cuda {

// REQUIRES: params.shape.int8_inputs.
LaunchResult LaunchInt8Linear(LinearParams params, bool gate_up, int tile_tokens, Stream stream);

}  // namespace moestro::cuda
