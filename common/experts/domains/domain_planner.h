// A pass over a layer from its rows to a plan: what is foreseen moves experts, the scheduler plans with where they lie
// then, and the rows that came are what the next pass is foreseen from. TriMoE, Fig. 4 (b).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/experts/domains/migrations.h"
#include "common/experts/domains/schedulers.h"
#include "common/experts/load_predictor.h"

namespace moestro::experts {

class DomainPlanner {  // not thread-safe
 public:
  struct Options {
    int64_t layers = 0;
    int64_t experts = 0;
    int64_t slots = 0;  // of the device, in each layer: 0 to kMostSlots
    DomainSchedule schedule = DomainSchedule::kTriDomain;
    bool prefetch = true;
    bool relayout = true;
  };
  DomainPlanner(const Options& options, const DomainCosts& costs);

  // Off-line: the layer's layout, from recorded passes, the rows of one by expert. Places experts by their mean loads.
  // Of the numbers of striped experts, in steps of a sixteenth, takes the one with which these passes end first.
  void Place(int64_t layer, std::span<const std::span<const int32_t>> recorded);

  struct Pass {
    DomainState state;
    const DomainPlan& plan;
    std::span<const Migration> migrations;  // before the layer
    double exposed = 0;                     // seconds by which these delayed it
    int64_t foreseen = 0;                   // experts that are wanted where the foreseen loads want them, too
  };
  // `window`: seconds before the layer's experts, of attention and dense layers. Valid until the next call.
  Pass Next(int64_t layer, std::span<const int32_t> rows, double window);

  std::span<const ExpertPlace> places(int64_t layer) const;
  // Of averages and places.
  int64_t bytes() const;

 private:
  std::span<ExpertPlace> PlacesOf(int64_t layer);
  void Foresee(int64_t layer);
  int64_t CountForeseen(int64_t layer, std::span<const int32_t> rows);

  const Options options_;
  const DomainCosts costs_;
  LoadPredictor predictor_;
  std::vector<ExpertPlace> places_;  // [layers, experts]
  std::vector<int64_t> striped_;     // wanted so, by layer
  MigrationPlanner migrations_;
  const std::unique_ptr<DomainScheduler> scheduler_;
  DomainPlan plan_;
  // By expert.
  std::vector<float> loads_;
  std::vector<int32_t> rows_;  // loads_, whole
  std::vector<Domain> foreseen_;
  std::vector<Domain> wanted_;
};

}  // namespace moestro::experts
