// What rows bring to the GPU: their embeddings and the rotations of their positions, and in a step of decode where each
// row's sequence lies.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/cuda/rows.h"
#include "common/model/attention/rope.h"
#include "common/model/batch.h"
#include "common/model/binding.h"
#include "common/model/engine.h"

namespace moestro::engine {

// Of a prompt.
class CudaInputs {
 public:
  // Both outlive it.
  CudaInputs(const weights::ModelSpec& spec, const model::ModelWeights& weights)
      : spec_(spec), weights_(weights), rope_(spec) {}

  // A new run on `device`, whose rows live until it ends.
  void Begin(std::span<const model::EngineRow> rows, const device::Device& device);
  // Puts the copies of what some rows bring on the stream: angles, and tokens, or embeddings where sums will be.
  absl::Status Copy(IndexRange rows, const CudaActivations& activations, device::Stream& stream) const;
  // Launches what makes the rows' residual of them.
  absl::Status Embed(const CudaRows& rows, cuda::Stream stream) const;

 private:
  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const model::Rope rope_;
  bool has_bf16() const { return weights_.embedding.dtype == DType::kBF16; }

  std::span<const model::EngineRow> rows_;
  // The kernel gathers the rows of the table, in host memory. Otherwise each is a copy, which would cost the host more
  // time than the bus: 32K of DeepSeek-V3 some 100 ms.
  bool gathers_ = false;
  std::vector<int32_t> tokens_;  // of the rows, where it does
  // Of another type than BF16, which is copied from the weights: F32 [distinct tokens, hidden_size], and each token's
  // row.
  std::vector<float> embeddings_;
  std::unordered_map<int32_t, int64_t> row_of_token_;
  std::vector<float> cosine_;  // [rows, pairs]
  std::vector<float> sine_;    // [rows, pairs]
};

// Arrays of a lane's rows in a step: in host memory, or on the device.
struct StepArrays {
  float* embeddings = nullptr;    // [rows, hidden]
  float* cosine = nullptr;        // [rows, rotated_dims() / 2]
  float* sine = nullptr;          // [rows, rotated_dims() / 2]
  int32_t* positions = nullptr;   // [rows]
  int32_t* first_page = nullptr;  // [rows]: where the row's sequence begins in `pages`
  int32_t* has_nan = nullptr;     // [num_layers], zeros
  uint32_t* pages = nullptr;      // places of every sequence's, those that its rows see
};

// Of a lane's part of a step: one copy, from pinned memory that is allocated once.
class StepRows {
 public:
  struct Limits {
    int64_t rows = 0;
    int64_t pages = 0;  // of all sequences together
  };
  static absl::StatusOr<StepRows> Create(device::Device& device, const weights::ModelSpec& spec, const Limits& limits);

  // Gathers what the rows need and puts its copy on the stream. What the step before put there is done. places: of the
  // pages that the batch's sequences see, one sequence after the other. RESOURCE_EXHAUSTED if they are more than the
  // limit.
  absl::Status Upload(const weights::ModelSpec& spec, const model::Rope& rope, const model::Embedding& embedding,
                      const model::CheckedBatch& batch, std::span<const uint32_t> places, device::Stream& stream);

  // On the device.
  const StepArrays& arrays() const { return device_; }

 private:
  StepRows(const Limits& limits, device::PinnedBuffer<uint8_t> host, device::Memory memory)
      : limits_(limits), host_memory_(std::move(host)), device_memory_(std::move(memory)) {}

  Limits limits_;
  device::PinnedBuffer<uint8_t> host_memory_;
  device::Memory device_memory_;
  StepArrays device_;
};

}  // namespace moestro::engine
