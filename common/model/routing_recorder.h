// Records passes of a model as a routing trace: what was chosen, what was next to be chosen, and what earlier layers
// would have predicted (HybriMoE, section IV-C).
//
// Recorded passes take up to four times the work of the routers more (gate_reuse.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/moe/gate_reuse.h"
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
  RoutingRecorder(const weights::WeightSegment& segment, ModelWeights weights, const CpuKernels& kernels,
                  WorkerPool& pool, int64_t max_rows);

  const weights::ModelSpec& spec_;
  const ModelWeights weights_;
  GateReuse gates_;
  std::unique_ptr<RoutingTraceWriter> trace_;
  std::vector<ExpertChoice> experts_;  // of a layer
};

}  // namespace moestro::model
