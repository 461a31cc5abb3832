#include "common/experts/domains/domain_planner.h"

namespace moestro::experts {

DomainPlanner::DomainPlanner(const Options& options, const DomainCosts& costs)
    : options_(options),
      costs_(costs),
      predictor_(options.layers, options.experts),
      places_(static_cast<size_t>(options.layers * options.experts)),
      migrations_({.experts = options.experts,
                   .slots = options.slots,
                   .used = DomainsOf(options.schedule),
                   .prefetch = options.prefetch,
                   .relayout = options.relayout},
                  costs_),
      scheduler_(NewDomainScheduler(options.schedule, options.experts, costs.dimms)),
      loads_(static_cast<size_t>(options.experts)),
      foreseen_(loads_.size()),
      wanted_(loads_.size()) {}

std::span<ExpertPlace> DomainPlanner::PlacesOf(int64_t layer) {
  return std::span(places_).subspan(static_cast<size_t>(layer * options_.experts),
                                    static_cast<size_t>(options_.experts));
}

std::span<const ExpertPlace> DomainPlanner::places(int64_t layer) const {
  return std::span(places_).subspan(static_cast<size_t>(layer * options_.experts),
                                    static_cast<size_t>(options_.experts));
}

void DomainPlanner::Place(int64_t layer, std::span<const float> loads) { migrations_.Place(loads, PlacesOf(layer)); }

std::span<const float> DomainPlanner::Foreseen(int64_t layer) {
  for (size_t i = 0; i < loads_.size(); ++i) loads_[i] = predictor_.At(layer, static_cast<int64_t>(i));
  return loads_;
}

int64_t DomainPlanner::CountForeseen(std::span<const int32_t> rows) {
  migrations_.Wanted(loads_, foreseen_);
  std::ranges::transform(rows, loads_.begin(), [](int32_t count) { return static_cast<float>(count); });
  migrations_.Wanted(loads_, wanted_);
  int64_t equal = 0;
  for (size_t i = 0; i < wanted_.size(); ++i) equal += foreseen_[i] == wanted_[i] ? 1 : 0;
  return equal;
}

DomainPlanner::Pass DomainPlanner::Next(int64_t layer, std::span<const int32_t> rows, double window) {
  Pass pass{.state = {costs_, rows, places(layer)}, .plan = plan_, .migrations = {}};
  if (predictor_.Knows(layer)) {
    pass.migrations = migrations_.Migrate(Foreseen(layer), window, PlacesOf(layer));
    pass.exposed = migrations_.exposed();
    pass.foreseen = CountForeseen(rows);
  }
  scheduler_->Plan(pass.state, plan_);
  predictor_.Update(layer, rows);
  return pass;
}

int64_t DomainPlanner::bytes() const {
  return predictor_.bytes() + std::ssize(places_) * static_cast<int64_t>(sizeof(ExpertPlace));
}

}  // namespace moestro::experts
