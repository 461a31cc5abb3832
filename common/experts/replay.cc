#include "common/experts/replay.h"

#include <algorithm>
#include <vector>

#include "common/base/status.h"

namespace moestro::experts {
namespace {

// The choices of all tokens in one layer.
std::vector<model::ExpertChoice> LayerChoices(const model::RoutingTraceModel& model, const model::RoutingStep& step,
                                              int64_t moe_layer) {
  std::vector<model::ExpertChoice> choices;
  const int64_t k = model.experts_per_token;
  for (int64_t token = 0; token < std::ssize(step.tokens); ++token) {
    const auto first = step.choices.begin() + (token * model.moe_layers + moe_layer) * k;
    choices.insert(choices.end(), first, first + k);
  }
  return choices;
}

}  // namespace

absl::StatusOr<CacheCounts> ReplayExperts(model::RoutingTraceReader& reader, bool prompts, ExpertPlanner& planner) {
  CacheCounts counts;
  model::RoutingStep step;
  while (true) {
    MOE_ASSIGN_OR_RETURN(const bool more, reader.Next(step));
    if (!more) return counts;
    if (!prompts && std::ranges::any_of(step.tokens, &model::TracedToken::prompt)) continue;
    for (int64_t layer = 0; layer < reader.model().moe_layers; ++layer) {
      const ExpertPlanner::Pass& pass = planner.Next(layer, LayerChoices(reader.model(), step, layer));
      counts.loads += std::ssize(pass.plan.loads) + std::ssize(pass.plan.later);
      for (const ExpertUse& use : pass.uses) {
        ++(use.held() ? counts.hits : counts.misses);
        (use.held() ? counts.row_hits : counts.row_misses) += use.rows;
      }
    }
  }
}

}  // namespace moestro::experts
