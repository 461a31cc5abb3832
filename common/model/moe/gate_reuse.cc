#include "common/model/moe/gate_reuse.h"

#include <algorithm>

#include "common/base/math.h"
#include "common/tensor/dtype.h"

namespace moestro::model {
namespace {

constexpr int64_t kScoredTogether = 16;  // experts: a task's weights stay in the core's cache for all rows

}  // namespace

GateReuse::GateReuse(const weights::ModelSpec& spec, const ModelWeights& weights, const CpuKernels& kernels,
                     WorkerPool& pool, int64_t max_rows)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      pool_(pool),
      inputs_(max_rows * spec.hidden_size),
      logits_(max_rows * spec.num_experts) {}

const FeedForwardWeights& GateReuse::LayerOf(int64_t layer) const {
  return weights_.layers[static_cast<size_t>(layer)].feed_forward;
}

std::span<const float> GateReuse::BiasOf(const FeedForwardWeights& layer) const {
  return {layer.bias, layer.bias != nullptr ? static_cast<size_t>(spec_.num_experts) : 0};
}

std::span<const float> GateReuse::LogitsOf(int64_t row) const {
  return {logits_.get() + row * spec_.num_experts, static_cast<size_t>(spec_.num_experts)};
}

void GateReuse::NextBest(const LayerRouting& routing, std::span<ExpertChoice> others) {
  const auto k = static_cast<size_t>(spec_.experts_per_token);
  const size_t rows = routing.choices.size() / k, per_row = others.size() / rows;
  const FeedForwardWeights& own = LayerOf(routing.layer);
  Score(own, own, routing.x, static_cast<int64_t>(rows));
  pool_.Run(static_cast<int64_t>(rows), [&](int64_t row, int) {
    const auto at = static_cast<size_t>(row);
    NextExperts(spec_, LogitsOf(row), BiasOf(own), routing.choices.subspan(at * k, k),
                others.subspan(at * per_row, per_row));
  });
}

void GateReuse::Foresee(const LayerRouting& routing, int64_t ahead, std::span<ExpertChoice> chosen) {
  const auto k = static_cast<size_t>(spec_.experts_per_token);
  const int64_t rows = std::ssize(routing.choices) / spec_.experts_per_token;
  const FeedForwardWeights& layer = LayerOf(spec_.MoeLayer(spec_.MoeLayersBelow(routing.layer) + ahead));
  Score(LayerOf(routing.layer), layer, routing.x, rows);
  pool_.Run(rows, [&](int64_t row, int) {
    const auto choices = chosen.subspan(static_cast<size_t>(row) * k, k);
    if (ChooseExperts(spec_, LogitsOf(row), BiasOf(layer), choices).ok()) return;
    std::ranges::fill(choices, ExpertChoice{.expert = -1});
  });
}

// Both layers norm the same residual, by the same statistics: what the later one reads is what the earlier one read,
// times the ratio of their norms' weights.
void GateReuse::Score(const FeedForwardWeights& of, const FeedForwardWeights& layer, const uint16_t* x, int64_t rows) {
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
