#include "common/model/routing_recorder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/model/binding.h"
#include "common/tensor/dtype.h"

namespace moestro::model {
namespace {

constexpr int64_t kScoredTogether = 16;  // experts: a task's weights stay in the core's cache for all rows

}  // namespace

RoutingRecorder::RoutingRecorder(const weights::WeightSegment& segment, const CpuKernels& kernels, WorkerPool& pool,
                                 int64_t max_rows)
    : spec_(segment.spec()),
      kernels_(kernels),
      pool_(pool),
      inputs_(max_rows * spec_.hidden_size),
      logits_(max_rows * spec_.num_experts) {}

absl::StatusOr<std::unique_ptr<RoutingRecorder>> RoutingRecorder::Create(const std::string& path,
                                                                         const weights::WeightSegment& segment,
                                                                         const CpuKernels& kernels, WorkerPool& pool,
                                                                         int64_t max_rows) {
  std::unique_ptr<RoutingRecorder> recorder(new RoutingRecorder(segment, kernels, pool, max_rows));
  MOE_ASSIGN_OR_RETURN(recorder->weights_, BindWeights(segment));
  RoutingTraceModel model = TraceModelOf(segment.spec(), segment.header().fingerprint);
  // HybriMoE's cache policy wants the scores of twice as many experts as are chosen.
  model.scores_per_token = std::min(model.experts_per_token, model.num_experts - model.experts_per_token);
  model.predicted_layers = std::min(kMaxPredictedLayers, model.moe_layers - 1);
  MOE_ASSIGN_OR_RETURN(recorder->trace_, RoutingTraceWriter::Create(path, model));
  return recorder;
}

const FeedForwardWeights& RoutingRecorder::LayerOf(int64_t moe_layer) const {
  return weights_.layers[static_cast<size_t>(spec_.MoeLayer(moe_layer))].feed_forward;
}

void RoutingRecorder::Note(const LayerRouting& routing) {
  const RoutingTraceModel& model = trace_->model();
  const int64_t k = model.experts_per_token, s = model.scores_per_token;
  const int64_t rows = std::ssize(routing.choices) / k;
  const int64_t moe_layer = spec_.MoeLayersBelow(routing.layer);
  const FeedForwardWeights& own = LayerOf(moe_layer);
  const auto bias_of = [this](const FeedForwardWeights& layer) {
    return std::span(layer.bias, layer.bias != nullptr ? static_cast<size_t>(spec_.num_experts) : 0);
  };
  trace_->Note(moe_layer, routing.first_row, routing.choices);
  if (s > 0) {
    Score(own, own, routing.x, rows);
    pool_.Run(rows, [&](int64_t row, int) {
      std::vector<ExpertChoice> next(static_cast<size_t>(s));
      NextExperts(spec_, LogitsOf(row), bias_of(own),
                  routing.choices.subspan(static_cast<size_t>(row * k), static_cast<size_t>(k)), next);
      trace_->NoteOthers(moe_layer, routing.first_row + row, next);
    });
  }
  const int64_t last = std::min(moe_layer + model.predicted_layers, model.moe_layers - 1);
  for (int64_t later = moe_layer + 1; later <= last; ++later) {
    const FeedForwardWeights& layer = LayerOf(later);
    Score(own, layer, routing.x, rows);
    pool_.Run(rows, [&](int64_t row, int) {
      std::vector<ExpertChoice> chosen(static_cast<size_t>(k));
      // Scores that are no numbers predict nothing.
      if (!ChooseExperts(spec_, LogitsOf(row), bias_of(layer), chosen).ok()) return;
      trace_->NotePrediction(later, routing.first_row + row, later - moe_layer, chosen);
    });
  }
}

std::span<const float> RoutingRecorder::LogitsOf(int64_t row) const {
  return {logits_.get() + row * spec_.num_experts, static_cast<size_t>(spec_.num_experts)};
}

// Both layers norm the same residual, by the same statistics: what the later one reads is what the earlier one read,
// times the ratio of their norms' weights.
void RoutingRecorder::Score(const FeedForwardWeights& of, const FeedForwardWeights& layer, const uint16_t* x,
                            int64_t rows) {
  const int64_t hidden = spec_.hidden_size, experts = spec_.num_experts;
  pool_.Run(rows, [&](int64_t row, int) {
    float* const to = inputs_.get() + row * hidden;
    for (int64_t i = 0; i < hidden; ++i) {
      const float ratio = &of == &layer ? 1.0f : of.norm[i] == 0 ? 0.0f : layer.norm[i] / of.norm[i];
      to[i] = FromBf16(x[row * hidden + i]) * ratio;
    }
  });
  pool_.Run(CeilDiv(experts, kScoredTogether), [&](int64_t task, int) {
    const int64_t begin = task * kScoredTogether, count = std::min(kScoredTogether, experts - begin);
    for (int64_t row = 0; row < rows; ++row) {
      float* const to = logits_.get() + row * experts + begin;
      kernels_.router_logits(layer.router + begin * hidden, count, hidden, inputs_.get() + row * hidden, to);
      if (layer.logit_bias != nullptr) kernels_.axpy(1.0f, layer.logit_bias + begin, count, to);
    }
  });
}

}  // namespace moestro::model
