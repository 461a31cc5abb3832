// The MLPs of some rows, launch by launch. Of a prompt: Dense; or Route, PlanRows, Experts in ascending groups,
// AddSharedExpert. Where routed experts are computed elsewhere, of a step of decode or of a rank's rows: Dense; or
// Route, RunSharedExpert, CombineExperts.
#pragma once

#include <span>

#include "common/engine/cuda/rows.h"
#include "common/kernels/cuda/routing.h"

namespace moestro::engine {

// residual += mlp(norm(residual))
absl::Status Dense(const CudaRows& rows, const model::FeedForwardWeights& w, cuda::Stream stream);

// x = norm(residual), the shared expert's gates, and the choices of experts, [rows, experts_per_token]. *has_nan
// becomes 1 if scores are NaN; ids are valid all the same. hand_over: where x also goes, if that is not null; its x and
// width are not looked at. REQUIRES then: the rows are one tile.
absl::Status Route(const CudaRows& rows, const model::FeedForwardWeights& w, model::ExpertChoice* choices,
                   int32_t* has_nan, cuda::Stream stream, const cuda::HandOver& hand_over = {});
// INTERNAL names the first layer whose scores are NaN.
absl::Status CheckScores(std::span<const int32_t> has_nan);

// From an ExpertChoice's id, or weight, to the next one's.
inline constexpr int64_t kChoiceStride = 2;

// Rows that go through experts, the prompt's own or not: `chosen` choices each, no more in all than the activations'
// expert_rows have.
struct RoutedRows {
  int64_t rows = 0;
  int64_t chosen = 0;
  const int32_t* ids = nullptr;    // [rows, chosen], `stride` apart
  const float* weights = nullptr;  // the same; null: all are 1
  int64_t stride = 1;
  const uint16_t* x = nullptr;      // BF16 [rows, CudaStride(hidden_size)]
  const uint16_t* codes = nullptr;  // of x, [rows, Int8Stride(hidden_size)]; null: none yet, or inputs are not coded
  float* sums = nullptr;            // F32 [rows, hidden_size]
  bool all_experts = false;         // Experts is called for all of the layer's

  // choices: [rows, chosen]
  static RoutedRows Of(const model::ExpertChoice* choices, int64_t rows, int64_t chosen) {
    return {
        .rows = rows, .chosen = chosen, .ids = &choices->expert, .weights = &choices->weight, .stride = kChoiceStride};
  }
};
// A pass's own, as Route leaves them in the activations.
RoutedRows OwnRows(const CudaRows& rows);

// The plans by which rows go to experts; x and sums are not looked at.
absl::Status PlanRows(const CudaRows& rows, const RoutedRows& routed, cuda::Stream stream);

// sums += the weighted outputs of experts first, first + 1, ..., at most cuda::kMaxMatrices; expert 0's sums begin at
// 0. If the rows are one tile and get all experts, their outputs are added together behind the last expert, in the same
// order.
absl::Status Experts(const CudaRows& rows, const RoutedRows& routed, std::span<const model::MlpWeights> experts,
                     int64_t first, cuda::Stream stream);

// out = the outputs of experts, at most cuda::kMaxMatrices of one shape. groups: their first group, tiles and rows; its
// matrices are not looked at. codes: of x, for I8 weights; null: they take BF16 inputs. gated: BF16 [rows of the tiles,
// CudaStride(moe_intermediate_size)].
absl::Status RunGroupedMlp(const weights::ModelSpec& spec, std::span<const model::MlpWeights> experts,
                           cuda::LinearGroups groups, const uint16_t* x, const uint16_t* codes, uint16_t* gated,
                           float* out, cuda::Stream stream);

// residual += sums + shared(x), times the gates' sigmoid if there are gates; the shared expert may have no rows.
absl::Status AddSharedExpert(const CudaRows& rows, const model::MlpWeights& w, cuda::Stream stream);

// The same where experts are elsewhere: shared, F32 [rows, hidden_size], = mlp(x), and residual += sums + shared. Then
// x = norm(residual), if next_norm, the norm that the next layer begins with, is not null.
absl::Status RunSharedExpert(const CudaRows& rows, const model::MlpWeights& w, float* shared, cuda::Stream stream);
absl::Status CombineExperts(const CudaRows& rows, const model::MlpWeights& w, const float* shared, const float* sums,
                            const float* next_norm, cuda::Stream stream);

}  // namespace moestro::engine
