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

absl::StatusOr<CacheCounts> ReplayCache(const std::string& path, int64_t slots, int64_t loads_per_pass, bool prompts,
                                        const ExpertCache::NewPolicy& new_policy) {
  MOE_ASSIGN_OR_RETURN(const auto reader, model::RoutingTraceReader::Open(path));
  const model::RoutingTraceModel& model = reader->model();
  ExpertCache cache({.moe_layers = model.moe_layers,
                     .num_experts = model.num_experts,
                     .slots = slots,
                     .loads_per_pass = loads_per_pass},
                    new_policy);
  CacheCounts counts;
  model::RoutingStep step;
  while (true) {
    MOE_ASSIGN_OR_RETURN(const bool more, reader->Next(step));
    if (!more) return counts;
    if (!prompts && std::ranges::any_of(step.tokens, &model::TracedToken::prompt)) continue;
    for (int64_t layer = 0; layer < model.moe_layers; ++layer) {
      const ExpertCache::Pass& pass = cache.Take(layer, LayerChoices(model, step, layer));
      counts.hits += std::ssize(pass.hits);
      counts.misses += std::ssize(pass.misses);
      counts.loads += std::ssize(pass.loads);
      for (const ExpertCache::Hit& hit : pass.hits) counts.row_hits += hit.use.rows;
      for (const ExpertUse& use : pass.misses) counts.row_misses += use.rows;
    }
  }
}

}  // namespace moestro::experts
