// Kernels that a GPU launches for the parts of a decode step (decode_compute.h): what simulations charge and
// cuda/cuda_decode does. Of weights in FP8 and BF16. Queries of others are rotated by a launch of their own; those of
// INT8 also code attention's output and what a down projection multiplies.
#pragma once

#include <cstdint>

#include "common/weights/model_spec.h"

namespace moestro::engine {

struct StepLaunches {
  int64_t embed = 0;
  int64_t attend_moe = 0;    // attention, router and choice
  int64_t attend_dense = 0;  // attention and the dense MLP
  int64_t left_out = 0;      // of both, in the layer behind one with experts, whose `combine` has done it
  int64_t shared = 0;
  int64_t combine = 0;
  int64_t head = 0;
  int64_t head_row = 0;  // beside `head`, for each row with logits
};

// At most as many rows as attention takes together.
StepLaunches LaunchesOf(const weights::ModelSpec& spec);

}  // namespace moestro::engine
