// The forward pass of a model on the CPU, over a weight segment and KV pages.
//
// Batch invariance: a token's KV and logits depend only on the tokens before it and on the MLA form. The other rows of
// the call, the chunk size, the number of threads and the process do not affect them. Weights and KV are read in place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"
#include "common/kv/pages.h"
#include "common/model/moe/gating.h"
#include "common/platform/worker_pool.h"
#include "common/weights/model_spec.h"
#include "common/weights/segment.h"

namespace moestro::model {

// Both forms of MLA compute the same function; the last bits differ. The absorbed form works on the 576 cached elements
// directly (cheap for few query rows). The un-absorbed form expands keys and values per head (cheap for many). Models
// with grouped queries ignore the form.
enum class MlaForm { kAbsorbed, kUnabsorbed };

struct EngineRow {
  int32_t token = 0;
  int32_t position = 0;
  int32_t sequence = 0;  // index into ForwardBatch::sequences
  bool needs_logits = false;
};

// Rows of one sequence are consecutive and in position order. All tokens before a sequence's first row are already in
// its pages.
struct ForwardBatch {
  std::span<const EngineRow> rows;  // 1..Engine::max_rows()
  std::span<const kv::KvPages> sequences;
  MlaForm form = MlaForm::kAbsorbed;
};

class Engine {  // one Forward at a time
 public:
  struct Options {
    int64_t max_rows = 256;  // rows of one Forward; bounds the activation buffers, which are allocated once
    // Forward calls it after each MoE layer, with all its rows; valid during the call. Empty: not called.
    std::function<void(const LayerRouting& routing)> on_routing = {};
  };
  // Binds every tensor now: NOT_FOUND / INVALID_ARGUMENT name what the segment lacks. Segment, kernels and pool must
  // outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const weights::WeightSegment& segment,
                                                        const CpuKernels& kernels, WorkerPool& pool,
                                                        const Options& options);
  ~Engine();

  // Of the activations of passes of up to max_rows rows on so many threads.
  static int64_t BufferBytes(const weights::ModelSpec& spec, int64_t max_rows, int threads);
  int64_t max_rows() const;
  const weights::ModelSpec& spec() const;
  // Whether Forward rounds inputs of FP8 weights to FP8.
  bool fp8_inputs() const;

  // Writes the rows' KV into their pages. Calls on_logits(row index, F32 [vocab_size]; padding ids are -inf) for each
  // row that needs logits, in row order. Calls `interrupted` before every layer: a status other than OK ends the call
  // with that status and leaves the rows' KV incomplete. INVALID_ARGUMENT for token ids or positions out of range,
  // INTERNAL if a logit is NaN.
  absl::Status Forward(const ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

  // The end of Forward alone, for rows that went through the layers elsewhere: residuals, F32 [rows, hidden_size], are
  // what the last layer left. Logits of the rows that need them, any number; `interrupted` is called before some at a
  // time.
  absl::Status Logits(std::span<const EngineRow> rows, std::span<const float> residuals,
                      absl::FunctionRef<absl::Status()> interrupted,
                      absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::model
