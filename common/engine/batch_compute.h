// What computes a step of a batch whose weights the device cannot hold: the device all but attention, or all;
// "MoE-Lightning", section 4.1. Micro-batch by micro-batch: these share the weights of a layer while they are there.
// One implementation for every kind of kernel.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/model/batch.h"
#include "common/model/engine.h"

namespace moestro::engine {

// Rows [first_row, first_row + rows.size()) of a step.
struct MicroBatch {
  model::CheckedBatch rows;
  int64_t first_row = 0;
};

// What the parts of attention hand on, of all rows of a step. Twice: in device memory, and in pinned host memory.
struct AttentionIo {
  float* queries = nullptr;     // F32 [rows, heads * qk_head_dim]: as they are projected
  uint16_t* entries = nullptr;  // BF16 [rows, kv_dim]: of the cache
  uint16_t* outputs = nullptr;  // BF16 [rows, heads * v_head_dim]: of attention

  static int64_t QueryWidth(const weights::ModelSpec& spec) { return spec.num_heads * spec.qk_head_dim(); }
  static int64_t OutputWidth(const weights::ModelSpec& spec) { return spec.num_heads * spec.v_head_dim; }
};

// Calls put work on the stream and return. One call at a time.
class BatchCompute {
 public:
  virtual ~BatchCompute() = default;

  // UNIMPLEMENTED names the form that the kernels have in place of this one.
  virtual absl::Status CheckForm(model::MlaForm form) const = 0;
  // A step begins; its micro-batches, which live until it ends. `io` is in device memory. REQUIRES a form that
  // CheckForm accepts.
  virtual void Begin(std::span<const MicroBatch> micro_batches, const AttentionIo& io) = 0;
  // All micro-batches.
  virtual absl::Status Embed(device::Stream& stream) = 0;
  // queries and entries of the micro-batch's rows
  virtual absl::Status PreAttention(int64_t layer, size_t micro_batch, device::Stream& stream) = 0;
  // outputs from queries, entries and the earlier tokens in `pages`, which get the entries: by index of a sequence, in
  // device memory, of this layer alone.
  virtual absl::Status Attend(int64_t layer, size_t micro_batch, std::span<const kv::KvPages> pages,
                              device::Stream& stream) = 0;
  // residual += output projection of `outputs`; then the layer's MLP, or its experts, which are there.
  virtual absl::Status PostAttention(int64_t layer, size_t micro_batch, device::Stream& stream) = 0;
  // After the layers: the logits of those `rows` that want them, in their order; row i is the step's row places[i].
  // Waits for them.
  virtual absl::Status Logits(std::span<const model::EngineRow> rows, std::span<const int64_t> places,
                              device::Stream& stream,
                              absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) = 0;
};

}  // namespace moestro::engine
