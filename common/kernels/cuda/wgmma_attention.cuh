// A prompt's attention by products of warp groups: on compute capability 9.0, in builds for sm_90a. Called by
// attention.cu, which has checked the arguments.
#pragma once

#include "common/kernels/cuda/attention.h"

namespace moestro::cuda {

// REQUIRES: HasWgmma() (linear.h).
LaunchResult LaunchWgmmaAttention(const PrefillAttentionArgs& args, Stream stream);

}  // namespace moestro::cuda
