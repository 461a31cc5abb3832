#include "common/model/moe/expert_plan.h"

namespace moestro::model {

void ExpertPlan::Sort(std::span<const ExpertChoice> choices, int64_t per_row, int64_t num_experts) {
  experts.resize(static_cast<size_t>(num_experts));
  for (size_t e = 0; e < experts.size(); ++e) experts[e] = {static_cast<int32_t>(e), 0, 0};
  for (const ExpertChoice& choice : choices) ++experts[static_cast<size_t>(choice.expert)].count;
  int64_t begin = 0;
  for (ExpertRows& expert : experts) {
    expert.begin = begin;
    begin += expert.count;
  }
  routed.resize(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    int64_t& next = experts[static_cast<size_t>(choices[i].expert)].begin;
    routed[static_cast<size_t>(next++)] = {static_cast<int64_t>(i) / per_row, choices[i].weight};
  }
  for (ExpertRows& expert : experts) expert.begin -= expert.count;
  std::erase_if(experts, [](const ExpertRows& expert) { return expert.count == 0; });
}

}  // namespace moestro::model
