#include "common/experts/prefetch.h"

#include <algorithm>

namespace moestro::experts {
namespace {

constexpr double kNothing = 1e-9;  // of a makespan: what sums in another order differ by

}  // namespace

ImpactPrefetch::ImpactPrefetch(Schedule schedule, int64_t num_experts)
    : num_experts_(num_experts), scheduler_(NewScheduler(schedule, num_experts)) {
  plan_.Reserve(num_experts);
}

std::vector<ExpertUse>& ImpactPrefetch::layer(int64_t ahead) {
  while (std::ssize(layers_) < ahead) {
    layers_.emplace_back().uses.reserve(static_cast<size_t>(num_experts_));
  }
  return layers_[static_cast<size_t>(ahead - 1)].uses;
}

void ImpactPrefetch::Begin(int64_t layers, const LayerState& state) {
  count_ = layers;
  state_.emplace(state);
  for (int64_t i = 0; i < count_; ++i) {
    Foreseen& layer = layers_[static_cast<size_t>(i)];
    layer.makespan = Makespan(layer);
    Try(layer);
  }
}

double ImpactPrefetch::Makespan(const Foreseen& layer) {
  if (layer.uses.empty()) return 0;
  LayerState state = *state_;
  state.uses = layer.uses;
  scheduler_->Plan(state, plan_);
  return plan_.makespan();
}

void ImpactPrefetch::Try(Foreseen& layer) {
  layer.candidate = -1;
  layer.shorter = layer.makespan;
  int32_t most_rows = 0;
  for (int64_t i = 0; i < std::ssize(layer.uses); ++i) {
    const ExpertUse& use = layer.uses[static_cast<size_t>(i)];
    if (use.held() || use.rows <= most_rows) continue;
    most_rows = use.rows;
    layer.candidate = i;
  }
  if (layer.candidate < 0) return;
  int64_t& slot = layer.uses[static_cast<size_t>(layer.candidate)].slot;
  slot = 0;  // any: the plan asks only whether it is held
  layer.shorter = Makespan(layer);
  slot = -1;
}

std::optional<ImpactPrefetch::Choice> ImpactPrefetch::Next() const {
  const auto layers = std::span(layers_).first(static_cast<size_t>(count_));
  const auto best = std::ranges::max_element(layers, {}, &Foreseen::impact);
  if (best == layers.end() || best->impact() <= kNothing * best->makespan) return std::nullopt;
  return Choice{best - layers.begin() + 1, best->uses[static_cast<size_t>(best->candidate)].expert};
}

void ImpactPrefetch::Take(const Choice& choice) {
  Foreseen& layer = layers_[static_cast<size_t>(choice.ahead - 1)];
  layer.uses[static_cast<size_t>(layer.candidate)].slot = 0;
  layer.makespan = layer.shorter;
  Try(layer);
}

}  // namespace moestro::experts
