#include "common/model/routing_recorder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/status.h"
#include "common/model/binding.h"

namespace moestro::model {

RoutingRecorder::RoutingRecorder(const weights::WeightSegment& segment, ModelWeights weights, const CpuKernels& kernels,
                                 WorkerPool& pool, int64_t max_rows)
    : spec_(segment.spec()), weights_(std::move(weights)), gates_(spec_, weights_, kernels, pool, max_rows) {}

absl::StatusOr<std::unique_ptr<RoutingRecorder>> RoutingRecorder::Create(const std::string& path,
                                                                         const weights::WeightSegment& segment,
                                                                         const CpuKernels& kernels, WorkerPool& pool,
                                                                         int64_t max_rows) {
  MOE_ASSIGN_OR_RETURN(ModelWeights weights, BindWeights(segment));
  std::unique_ptr<RoutingRecorder> recorder(new RoutingRecorder(segment, std::move(weights), kernels, pool, max_rows));
  RoutingTraceModel model = TraceModelOf(segment.spec(), segment.header().fingerprint);
  // HybriMoE's cache policy wants the scores of twice as many experts as are chosen.
  model.scores_per_token = std::min(model.experts_per_token, model.num_experts - model.experts_per_token);
  model.predicted_layers = std::min(kMaxPredictedLayers, model.moe_layers - 1);
  MOE_ASSIGN_OR_RETURN(recorder->trace_, RoutingTraceWriter::Create(path, model));
  return recorder;
}

void RoutingRecorder::Note(const LayerRouting& routing) {
  const RoutingTraceModel& model = trace_->model();
  const int64_t k = model.experts_per_token;
  const int64_t rows = std::ssize(routing.choices) / k;
  const int64_t moe_layer = spec_.MoeLayersBelow(routing.layer);
  trace_->Note(moe_layer, routing.first_row, routing.choices);
  experts_.resize(static_cast<size_t>(rows * std::max(k, model.scores_per_token)));
  if (model.scores_per_token > 0) {
    const auto others = std::span(experts_).first(static_cast<size_t>(rows * model.scores_per_token));
    gates_.NextBest(routing, others);
    trace_->NoteOthers(moe_layer, routing.first_row, others);
  }
  const int64_t last = std::min(model.predicted_layers, model.moe_layers - 1 - moe_layer);
  for (int64_t ahead = 1; ahead <= last; ++ahead) {
    const auto chosen = std::span(experts_).first(static_cast<size_t>(rows * k));
    gates_.Foresee(routing, ahead, chosen);
    for (int64_t row = 0; row < rows; ++row) {
      const auto of_row = chosen.subspan(static_cast<size_t>(row * k), static_cast<size_t>(k));
      if (of_row.front().expert < 0) continue;  // scores that are no numbers predict nothing
      trace_->NotePrediction(moe_layer + ahead, routing.first_row + row, ahead, of_row);
    }
  }
}

}  // namespace moestro::model
