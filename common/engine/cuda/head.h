// Where a forward pass ends: logits, and what a prompt leaves for the host beside keys and values: these, and whether
// the scores of experts were NaN.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/cuda/rows.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/model/head.h"

namespace moestro::engine {

// input[i] = norm(row wanted[i] of residual), BF16 or coded, [wanted, CudaStride(hidden_size)].
absl::Status NormHeadInput(const weights::ModelSpec& spec, const float* final_norm, const float* residual,
                           std::span<const int64_t> wanted, bool coded, uint16_t* input, cuda::Stream stream);
// logits, F32 [count, vocab_size]: those of the slice, of the first `count` rows of the input, which is as the slice's
// weights take it.
absl::Status RunHead(const weights::ModelSpec& spec, const model::HeadSlice& slice, int64_t count,
                     const CudaInputRows& input, float* logits, cuda::Stream stream);
// Hands out the logits of the rows `wanted`, host memory [wanted, vocab_size], row by row, padding ids as -inf.
// INTERNAL if one is NaN.
absl::Status FinishLogits(const weights::ModelSpec& spec, std::span<const model::EngineRow> rows,
                          std::span<const int64_t> wanted, float* logits,
                          absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

// Logits of a step, some rows at a time, whose memory is allocated once.
class StepHead {
 public:
  static int64_t Bytes(const weights::ModelSpec& spec);  // of device memory
  static absl::StatusOr<StepHead> Create(device::Device& device, const weights::ModelSpec& spec);

  // Logits of the rows that want them, in row order. Row i's residual is row places[i] of `residual`, or row i if there
  // are no places. Waits for them.
  absl::Status Logits(const weights::ModelSpec& spec, const model::ModelWeights& weights, bool coded,
                      const float* residual, std::span<const model::EngineRow> rows, std::span<const int64_t> places,
                      device::Stream& stream,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) const;

 private:
  StepHead(device::Memory input, device::Memory logits, device::PinnedBuffer<float> host_logits)
      : input_(std::move(input)), logits_(std::move(logits)), host_logits_(std::move(host_logits)) {}

  device::Memory input_;   // BF16 [kLogitRows, CudaStride(hidden)]
  device::Memory logits_;  // F32 [kLogitRows, vocab_size]
  device::PinnedBuffer<float> host_logits_;
};

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
