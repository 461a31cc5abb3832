// What a recording tells of how experts are used.
//
// Loads are counted in passes that generate only: a prompt's pass uses far more experts at once. In each such pass and
// layer experts are ranked by load, the lower id first where loads are equal: the first tenth is hot, the last 70 % are
// cold, those between are warm (TriMoE, section 3.1). With few tokens a pass most loads are 0 or 1, and ranks say
// little.
#pragma once

#include <cstdint>
#include <vector>

#include "common/experts/load_predictor.h"
#include "common/model/routing_trace.h"

namespace moestro::experts {

class RoutingStatistics {
 public:
  explicit RoutingStatistics(const model::RoutingTraceModel& model);
  void Add(const model::RoutingStep& step);

  int64_t passes() const { return passes_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t generated_tokens() const { return generated_tokens_; }

  // The next ones are 0 where there is nothing to count.
  double DifferentExperts() const;  // mean over passes and layers
  // Share of all choices that fall on the most chosen tenth of each layer's experts.
  double HottestTenth() const;
  // Share of the choices that fall on cold experts.
  double ColdShare() const;
  // Share of experts that are hot, warm or cold as foreseen by LoadPredictor. 0.54 for a guess.
  double AverageAccuracy() const;
  // Share of the chosen experts that the `ahead`-th layer before predicted, in layers that have one.
  double Foreseen(int64_t ahead) const;

 private:
  enum class Class : uint8_t { kHot, kWarm, kCold };
  void CountLoads(const model::RoutingStep& step);
  void CountForeseen(const model::RoutingStep& step);
  // By expert. `loads`: of one layer.
  static std::vector<Class> Classify(const std::vector<float>& loads);

  const model::RoutingTraceModel model_;
  int64_t passes_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  int64_t different_ = 0;      // experts, summed over passes and layers
  std::vector<int64_t> uses_;  // [moe_layers, num_experts]
  LoadPredictor predictor_;
  int64_t loads_ = 0;       // choices in passes that generate
  int64_t cold_loads_ = 0;  // of these, of cold experts
  int64_t classed_ = 0;     // experts with a prediction
  int64_t classed_right_ = 0;
  std::vector<int64_t> predictable_;  // by `ahead`: choices where there was a prediction
  std::vector<int64_t> foreseen_;     // of these, the predicted ones
};

}  // namespace moestro::experts
