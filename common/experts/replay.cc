#include "common/experts/replay.h"

#include <algorithm>

#include "common/base/status.h"

namespace moestro::experts {
namespace {

// What all tokens of a pass have in one layer, of an array [tokens, layers, per_row].
void Gather(std::span<const model::ExpertChoice> all, int64_t layers, int64_t layer, int64_t per_row,
            std::vector<model::ExpertChoice>& of_layer) {
  of_layer.clear();
  if (per_row == 0) return;
  for (int64_t at = layer * per_row; at < std::ssize(all); at += layers * per_row) {
    const auto row = all.subspan(static_cast<size_t>(at), static_cast<size_t>(per_row));
    of_layer.insert(of_layer.end(), row.begin(), row.end());
  }
}

}  // namespace

ExpertReplay::ExpertReplay(const model::RoutingTraceModel& model, int64_t prefetch_layers, ExpertPlanner& planner)
    : model_(model),
      planner_(planner),
      foreseen_(static_cast<size_t>(std::min(prefetch_layers, model.predicted_layers))) {}

void ExpertReplay::Add(const model::RoutingStep& step) {
  const int64_t layers = model_.moe_layers;
  for (int64_t layer = 0; layer < layers; ++layer) {
    Gather(step.choices, layers, layer, model_.experts_per_token, choices_);
    Gather(step.others, layers, layer, model_.scores_per_token, others_);
    for (int64_t ahead = 1; ahead <= std::ssize(foreseen_); ++ahead) {
      std::vector<int32_t>& experts = foreseen_[static_cast<size_t>(ahead - 1)];
      experts.clear();
      if (layer + ahead >= layers) continue;
      for (int64_t token = 0; token < std::ssize(step.tokens); ++token) {
        const uint8_t* const set = step.predicted.data() + model_.SetAt(token, layer + ahead, ahead);
        for (int32_t expert = 0; expert < model_.num_experts; ++expert) {
          if ((set[expert / 8] >> (expert % 8) & 1) != 0) experts.push_back(expert);
        }
      }
    }
    const ExpertPlanner::Pass& pass = planner_.Next(
        layer, {.choices = choices_, .rows = std::ssize(step.tokens), .others = others_, .foreseen = foreseen_});
    counts_.loads += pass.ended;
    counts_.loads_ahead += pass.ahead;
    counts_.foreseen_hits += pass.foreseen_hits;
    counts_.seconds += pass.plan.makespan() + planner_.costs().between;
    for (const ExpertUse& use : pass.uses) {
      ++(use.held() ? counts_.hits : counts_.misses);
      (use.held() ? counts_.row_hits : counts_.row_misses) += use.rows;
    }
  }
}

absl::StatusOr<CacheCounts> ReplayExperts(model::RoutingTraceReader& reader, bool prompts, int64_t prefetch_layers,
                                          ExpertPlanner& planner) {
  ExpertReplay replay(reader.model(), prefetch_layers, planner);
  model::RoutingStep step;
  while (true) {
    MOE_ASSIGN_OR_RETURN(const bool more, reader.Next(step));
    if (!more) return replay.counts();
    if (!prompts && std::ranges::any_of(step.tokens, &model::TracedToken::prompt)) continue;
    replay.Add(step);
  }
}

}  // namespace moestro::experts
