// Where a forward pass ends: the final norm, logits of up to kLogitRows rows at a time, by slices of the head or all at
// once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/context.h"
#include "common/model/engine.h"

namespace moestro {

// Rows [first, first + weights.rows) of the head; `first` is a multiple of the scale block.
struct HeadSlice {
  PackedMatrix weights;
  int64_t first = 0;
};

// Indices of the rows that want logits.
std::vector<int64_t> RowsWithLogits(std::span<const EngineRow> rows);
// Calls run(indices) for them, at most kLogitRows at a time. Ends with the first error.
absl::Status ForRowsWithLogits(std::span<const EngineRow> rows,
                               absl::FunctionRef<absl::Status(std::span<const int64_t> wanted)> run);

// normed_narrow[i] = final_norm(residual[wanted[i]])
void NormHeadInput(EngineContext& context, const float* final_norm, const float* residual,
                   std::span<const int64_t> wanted);

// The slice's logits of the first `count` rows of normed_narrow.
void RunHead(EngineContext& context, const HeadSlice& slice, int64_t count);

// One row's: padding ids become -inf. INTERNAL if a logit is NaN.
absl::Status FinishRow(const EngineRow& row, int64_t token_count, std::span<float> logits);

// Hands out the logits, row by row, padding ids as -inf. INTERNAL if one is NaN.
absl::Status FinishLogits(EngineContext& context, std::span<const EngineRow> rows, std::span<const int64_t> wanted,
                          absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

}  // namespace moestro
