#include "common/experts/domains/domain_planner.h"

#include <cmath>
#include <limits>

namespace moestro::experts {
namespace {

constexpr int64_t kSteps = 16;  // of the number of striped experts

}  // namespace

DomainPlanner::DomainPlanner(const Options& options, const DomainCosts& costs)
    : options_(options),
      costs_(costs),
      predictor_(options.layers, options.experts),
      places_(static_cast<size_t>(options.layers * options.experts)),
      striped_(static_cast<size_t>(options.layers), options.experts),
      migrations_({.experts = options.experts,
                   .slots = options.slots,
                   .used = DomainsOf(options.schedule),
                   .prefetch = options.prefetch,
                   .relayout = options.relayout},
                  costs_),
      scheduler_(NewDomainScheduler(options.schedule, options.experts, costs.dimms)),
      loads_(static_cast<size_t>(options.experts)),
      rows_(loads_.size()),
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

void DomainPlanner::Place(int64_t layer, std::span<const std::span<const int32_t>> recorded) {
  std::ranges::fill(loads_, 0.0F);
  for (const std::span<const int32_t> rows : recorded) {
    for (size_t i = 0; i < rows.size(); ++i) {
      loads_[i] += static_cast<float>(rows[i]) / static_cast<float>(recorded.size());
    }
    predictor_.Update(layer, rows);
  }
  int64_t& striped = striped_[static_cast<size_t>(layer)];
  double least = std::numeric_limits<double>::infinity();
  for (int64_t step = 0; step <= kSteps; ++step) {
    const int64_t tried = options_.experts * step / kSteps;
    migrations_.Place(loads_, tried, PlacesOf(layer));
    double seconds = 0;
    for (const std::span<const int32_t> rows : recorded) {
      scheduler_->Plan({costs_, rows, places(layer)}, plan_);
      seconds += plan_.makespan();
    }
    if (seconds >= least) continue;
    least = seconds;
    striped = tried;
  }
  migrations_.Place(loads_, striped, PlacesOf(layer));
}

void DomainPlanner::Foresee(int64_t layer) {
  for (size_t i = 0; i < loads_.size(); ++i) {
    loads_[i] = predictor_.At(layer, static_cast<int64_t>(i));
    rows_[i] = static_cast<int32_t>(std::lround(loads_[i]));
  }
}

int64_t DomainPlanner::CountForeseen(int64_t layer, std::span<const int32_t> rows) {
  const int64_t striped = striped_[static_cast<size_t>(layer)];
  migrations_.Wanted(loads_, striped, foreseen_);
  std::ranges::transform(rows, loads_.begin(), [](int32_t count) { return static_cast<float>(count); });
  migrations_.Wanted(loads_, striped, wanted_);
  int64_t equal = 0;
  for (size_t i = 0; i < wanted_.size(); ++i) equal += foreseen_[i] == wanted_[i] ? 1 : 0;
  return equal;
}

DomainPlanner::Pass DomainPlanner::Next(int64_t layer, std::span<const int32_t> rows, double window) {
  Pass pass{.state = {costs_, rows, places(layer)}, .plan = plan_, .migrations = {}};
  if (predictor_.Knows(layer)) {
    Foresee(layer);
    scheduler_->Plan({costs_, rows_, places(layer)}, plan_);
    pass.migrations =
        migrations_.Migrate(loads_, striped_[static_cast<size_t>(layer)], plan_.domains, window, PlacesOf(layer));
    pass.exposed = migrations_.exposed();
    pass.foreseen = CountForeseen(layer, rows);
  }
  scheduler_->Plan(pass.state, plan_);
  predictor_.Update(layer, rows);
  return pass;
}

int64_t DomainPlanner::bytes() const {
  return predictor_.bytes() + std::ssize(places_) * static_cast<int64_t>(sizeof(ExpertPlace));
}

}  // namespace moestro::experts
