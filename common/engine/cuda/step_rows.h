// What a lane's rows bring to the device: one copy a step, from pinned memory that is allocated once.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/model/attention/rope.h"
#include "common/model/batch.h"

namespace moestro {

// Pointers to the arrays: in host memory, or on the device.
struct StepArrays {
  uint16_t* embeddings = nullptr;  // BF16 [rows, hidden]
  float* cosine = nullptr;         // [rows, qk_rope_head_dim / 2]
  float* sine = nullptr;           // [rows, qk_rope_head_dim / 2]
  int32_t* positions = nullptr;    // [rows]
  int32_t* first_page = nullptr;   // [rows]: where the row's sequence begins in `pages`
  int32_t* has_nan = nullptr;      // [num_layers], zeros
  uint32_t* pages = nullptr;       // of every sequence, those that its rows see
};

class StepRows {
 public:
  struct Limits {
    int64_t rows = 0;
    int64_t pages = 0;  // of all sequences together
  };
  static absl::StatusOr<StepRows> Create(device::Device& device, const ModelSpec& spec, const Limits& limits);

  // Gathers what the rows need and puts its copy on the stream. What the step before put there is done.
  // RESOURCE_EXHAUSTED if the sequences have more pages than the limit. `embedding`: BF16 [vocab_size, hidden].
  absl::Status Upload(const ModelSpec& spec, const Rope& rope, const uint16_t* embedding, const CheckedBatch& batch,
                      device::Stream& stream);

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

}  // namespace moestro
