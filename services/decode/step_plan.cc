#include "services/decode/step_plan.h"

#include <algorithm>

namespace moestro {

int64_t CountDecodeRows(std::span<const int64_t> pending) { return std::ranges::count(pending, 1); }

StepPlan PlanStep(std::span<const int64_t> pending, int64_t prompt_budget) {
  StepPlan plan;
  plan.decode_rows = CountDecodeRows(pending);
  for (const int64_t tokens : pending) {
    const int64_t rows = tokens == 1 ? 1 : std::min(tokens, prompt_budget - plan.prompt_rows);
    plan.rows.push_back(rows);
    if (tokens > 1) plan.prompt_rows += rows;
  }
  return plan;
}

}  // namespace moestro
