// The MLPs of a pass, launch by launch: Dense; or RouteRows, Experts in ascending groups, AddSharedExpert.
#pragma once

#include <span>

#include "services/prefill/stream/cuda/pass.h"

namespace moestro {

// residual += mlp(norm(residual))
absl::Status Dense(const CudaPass& pass, const FeedForwardWeights& w, cuda::Stream stream);

// Norm, choice of experts, and the plans by which rows go to them. *has_nan becomes 1 if scores are NaN.
absl::Status RouteRows(const CudaPass& pass, const FeedForwardWeights& w, int32_t* has_nan, cuda::Stream stream);

// sums (+)= the weighted outputs of experts first, first + 1, ..., at most kMaxExpertsTogether.
absl::Status Experts(const CudaPass& pass, std::span<const MlpWeights> experts, int64_t first, cuda::Stream stream);

// residual += sums + shared(normed_narrow); the shared expert may have no rows.
absl::Status AddSharedExpert(const CudaPass& pass, const MlpWeights& w, cuda::Stream stream);

}  // namespace moestro
