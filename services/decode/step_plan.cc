#include "services/decode/step_plan.h"

#include <algorithm>

#include "common/base/math.h"

namespace moestro::decode {

int64_t CountDecodeRows(std::span<const int64_t> pending) { return std::ranges::count(pending, 1); }

StepPlan PlanStep(std::span<const int64_t> pending, int64_t prompt_budget) {
  StepPlan plan;
  plan.decode_rows = CountDecodeRows(pending);
  plan.rows.assign(pending.size(), 0);
  std::vector<size_t> prompts;  // by index; the shortest first
  for (size_t i = 0; i < pending.size(); ++i) {
    if (pending[i] == 1) plan.rows[i] = 1;
    if (pending[i] > 1) prompts.push_back(i);
  }
  if (prompts.empty()) return plan;
  const auto give = [&](size_t prompt, int64_t most) {
    const int64_t rows = std::min({pending[prompt] - plan.rows[prompt], most, prompt_budget - plan.prompt_rows});
    plan.rows[prompt] += rows;
    plan.prompt_rows += rows;
  };
  const size_t first = prompts.front();
  give(first, CeilDiv(prompt_budget, 2));
  std::ranges::stable_sort(prompts, {}, [&](size_t prompt) { return pending[prompt]; });
  for (const size_t prompt : prompts) {
    if (prompt != first) give(prompt, prompt_budget);
  }
  give(first, prompt_budget);
  return plan;
}

}  // namespace moestro::decode
