// Chooses which rows a step computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moestro::decode {

struct StepPlan {
  std::vector<int64_t> rows;  // per sequence: how many of its next tokens; 0: it skips this step
  int64_t decode_rows = 0;    // sequences that have one token to compute
  int64_t prompt_rows = 0;    // rows of sequences that have more
};

// Sequences that have one token to compute.
int64_t CountDecodeRows(std::span<const int64_t> pending);

// `pending`: tokens that each sequence has still to compute, at least 1, in order of arrival. A sequence with one
// pending token gets one row. All others together get `prompt_budget` rows. Half go to the prompt that arrived first,
// so that later ones cannot stop it. The other half goes to the shortest prompts, so that they do not wait for a long
// one.
StepPlan PlanStep(std::span<const int64_t> pending, int64_t prompt_budget);

}  // namespace moestro::decode
