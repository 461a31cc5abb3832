// How fast this machine's kernels multiply, for estimates.
#pragma once

#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"

namespace moestro::cli {

// Multiplications and additions per second of `threads` threads that multiply rows with weights of the type `linear`,
// FP8 or BF16. The weights stay in a cache, and there are as many rows as an expert gets of a long prompt, so a model
// is slower. Takes some 0.2 s. REQUIRES: threads > 0. The errors are those of SelectKernels.
absl::StatusOr<double> MeasureProductRate(DType linear, int threads);

}  // namespace moestro::cli
