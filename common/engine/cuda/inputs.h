// What a run's rows bring to the GPU: their embeddings, and the rotations of their positions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/engine/cuda/rows.h"
#include "common/model/attention/rope.h"
#include "common/model/binding.h"
#include "common/model/engine.h"

namespace moestro {

class CudaInputs {
 public:
  // Both outlive it; embeddings are copied from the weights row by row.
  CudaInputs(const ModelSpec& spec, const ModelWeights& weights) : spec_(spec), weights_(weights), rope_(spec) {}

  // A new run, whose rows live until it ends.
  void Begin(std::span<const EngineRow> rows);
  // Puts the copies of what some rows bring on the stream: angles, and BF16 embeddings where sums will be.
  absl::Status Copy(IndexRange rows, const CudaActivations& activations, device::Stream& stream) const;
  // Where they are then.
  static const uint16_t* Embeddings(const CudaActivations& activations) {
    return reinterpret_cast<const uint16_t*>(activations.sums);
  }

 private:
  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const Rope rope_;
  std::span<const EngineRow> rows_;
  std::vector<float> cosine_;  // [rows, pairs]
  std::vector<float> sine_;    // [rows, pairs]
};

}  // namespace moestro
