#include "common/model/expert_plan.h"

namespace moestro {

ExpertPlan PlanExperts(std::span<const ExpertChoice> choices, int64_t per_row, int64_t num_experts) {
  std::vector<int64_t> next(num_experts, 0);  // first the number of rows, then where an expert's next row goes
  for (const ExpertChoice& choice : choices) ++next[choice.expert];
  ExpertPlan plan;
  int64_t begin = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t count = next[e];
    if (count > 0) plan.experts.push_back({static_cast<int32_t>(e), begin, count});
    next[e] = begin;
    begin += count;
  }
  plan.routed.resize(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    plan.routed[next[choices[i].expert]++] = {static_cast<int64_t>(i) / per_row, choices[i].weight};
  }
  return plan;
}

}  // namespace moestro
