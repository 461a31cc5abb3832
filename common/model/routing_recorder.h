// Records passes of a model as a routing trace: what was chosen, what was next to be chosen, and what earlier layers
// would have predicted (HybriMoE, section IV-C).
//
// Scores and predictions are computed here, from what each layer's experts read, so they are the same for every engine
// and device. That costs up to four times the work of the routers, in passes that are recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/buffer.h"
#include "common/model/moe/gating.h"
#include "common/model/routing_trace.h"
#include "common/model/schema.h"
#include "common/platform/worker_pool.h"
#include "common/weights/segment.h"

namespace moestro::model {

class RoutingRecorder {
 public:
  // For passes of up to max_rows rows. Segment, kernels and pool must outlive it. Errors as of
  // RoutingTraceWriter::Create and BindWeights.
  static absl::StatusOr<std::unique_ptr<RoutingRecorder>> Create(const std::string& path,
                                                                 const weights::WeightSegment& segment,
                                                                 const CpuKernels& kernels, WorkerPool& pool,
                                                                 int64_t max_rows);

  // Begins and ends passes.
  RoutingTraceWriter& trace() { return *trace_; }
  // Of the pass that has begun. Not thread-safe; uses the pool.
  void Note(const LayerRouting& routing);

 private:
  RoutingRecorder(const weights::WeightSegment& segment, const CpuKernels& kernels, WorkerPool& pool, int64_t max_rows);

  const FeedForwardWeights& LayerOf(int64_t moe_layer) const;
  // logits_ = what `layer`'s router says of rows whose own layer, `of`, read `x`.
  void Score(const FeedForwardWeights& of, const FeedForwardWeights& layer, const uint16_t* x, int64_t rows);
  std::span<const float> LogitsOf(int64_t row) const;

  const weights::ModelSpec& spec_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  ModelWeights weights_;
  std::unique_ptr<RoutingTraceWriter> trace_;
  Buffer<float> inputs_;  // [R, hidden_size], R = max_rows
  Buffer<float> logits_;  // [R, num_experts]
};

}  // namespace moestro::model
