// The MLPs of a pass, launch by launch: Dense; or RouteRows, PlanRows, Experts in ascending groups, AddSharedExpert.
#pragma once

#include <span>

#include "services/prefill/stream/cuda/pass.h"

namespace moestro {

// residual += mlp(norm(residual))
absl::Status Dense(const CudaPass& pass, const FeedForwardWeights& w, cuda::Stream stream);

// Where choices of experts go.
struct CudaChoices {
  int32_t* ids = nullptr;
  float* weights = nullptr;
  int64_t stride = 1;  // of both: 2 where they are pairs
};

// Norm and choice of experts, of the pass's rows. *has_nan becomes 1 if scores are NaN.
absl::Status RouteRows(const CudaPass& pass, const FeedForwardWeights& w, const CudaChoices& choices, int32_t* has_nan,
                       cuda::Stream stream);

// Rows that go through experts, the pass's own or not: `chosen` choices each, no more in all than the activations'
// expert_rows have.
struct RoutedRows {
  int64_t rows = 0;
  int64_t chosen = 0;
  const int32_t* ids = nullptr;    // [rows, chosen], `stride` apart
  const float* weights = nullptr;  // the same; null: all are 1
  int64_t stride = 1;
  const uint16_t* x = nullptr;  // BF16 [rows, CudaStride(hidden_size)]
  float* sums = nullptr;        // F32 [rows, hidden_size]
};
// The pass's own, as RouteRows leaves them in the activations.
RoutedRows OwnRows(const CudaPass& pass);

// The plans by which rows go to experts; x and sums are not looked at.
absl::Status PlanRows(const CudaPass& pass, const RoutedRows& routed, cuda::Stream stream);

// sums += the weighted outputs of experts first, first + 1, ..., at most kMaxExpertsTogether; expert 0's sums begin at
// 0.
absl::Status Experts(const CudaPass& pass, const RoutedRows& routed, std::span<const MlpWeights> experts, int64_t first,
                     cuda::Stream stream);

// residual += sums + shared(normed_narrow); the shared expert may have no rows.
absl::Status AddSharedExpert(const CudaPass& pass, const MlpWeights& w, cuda::Stream stream);

}  // namespace moestro
