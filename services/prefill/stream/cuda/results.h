// What a run leaves for the host beside keys and values: logits of the rows that want them, and whether the scores of
// experts were NaN.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "services/prefill/stream/compute.h"
#include "services/prefill/stream/cuda/pass.h"

namespace moestro {

class CudaResults {
 public:
  // A new run. rows: of its last pass, in which all logits are wanted; they live until it ends.
  void Begin(const ModelSpec& spec, std::span<const EngineRow> rows);
  // Puts the copy that says that nothing is NaN yet on the stream.
  absl::Status Clear(const CudaActivations& activations, device::Stream& stream) const;
  // The rows' final norm, with the head's first slice, and the slice's logits.
  absl::Status LaunchHead(const CudaPass& pass, const ModelWeights& weights, const StagedModule& slice,
                          cuda::Stream stream) const;
  // Puts the copies to the host on the stream.
  absl::Status Fetch(const CudaActivations& activations, device::Stream& stream);
  // When they are done: logits in row order; row counts from the first of `rows`. INTERNAL if something is NaN.
  absl::Status Logits(const ModelSpec& spec,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

 private:
  std::span<const EngineRow> rows_;
  std::vector<int64_t> wanted_;   // rows
  std::vector<float> logits_;     // [wanted, vocab_size]
  std::vector<int32_t> has_nan_;  // [num_layers]
};

}  // namespace moestro
