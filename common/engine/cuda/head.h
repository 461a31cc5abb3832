// Where a forward pass ends: logits, and what a prompt leaves for the host beside keys and values: these, and whether
// the scores of experts were NaN.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/engine/cuda/rows.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/model/head.h"

namespace moestro::engine {

// input[i] = norm(row wanted[i] of residual), BF16 [wanted, CudaStride(hidden_size)].
absl::Status NormHeadInput(const weights::ModelSpec& spec, const float* final_norm, const float* residual,
                           std::span<const int64_t> wanted, uint16_t* input, cuda::Stream stream);
// logits, F32 [count, vocab_size]: those of the slice, of the first `count` rows of the input, which is as the slice's
// weights take it.
absl::Status RunHead(const weights::ModelSpec& spec, const model::HeadSlice& slice, int64_t count,
                     const CudaInputRows& input, float* logits, cuda::Stream stream);
// Hands out the logits of the rows `wanted`, host memory [wanted, vocab_size], row by row, padding ids as -inf.
// INTERNAL if one is NaN.
absl::Status FinishLogits(const weights::ModelSpec& spec, std::span<const model::EngineRow> rows,
                          std::span<const int64_t> wanted, float* logits,
                          absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

class CudaResults {
 public:
  // A new run. rows: of its last pass, in which all logits are wanted; they live until it ends.
  void Begin(const weights::ModelSpec& spec, std::span<const model::EngineRow> rows);
  // Puts the copy that says that nothing is NaN yet on the stream.
  absl::Status Clear(const CudaActivations& activations, device::Stream& stream) const;
  // The slice's logits of the rows, which have been normed with final_norm; null: with an earlier slice.
  absl::Status LaunchHead(const CudaRows& rows, const float* final_norm, const model::HeadSlice& slice,
                          cuda::Stream stream) const;
  // Puts the copies to the host on the stream.
  absl::Status Fetch(const CudaActivations& activations, device::Stream& stream);
  // When they are done: logits in row order; row counts from the first of `rows`. INTERNAL if something is NaN.
  absl::Status Logits(const weights::ModelSpec& spec,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

 private:
  std::span<const model::EngineRow> rows_;
  std::vector<int64_t> wanted_;   // rows
  std::vector<float> logits_;     // [wanted, vocab_size]
  std::vector<int32_t> has_nan_;  // [num_layers]
};

}  // namespace moestro::engine
