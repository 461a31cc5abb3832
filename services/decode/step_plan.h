// Which rows a step computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moestro {

struct StepPlan {
  std::vector<int64_t> rows;  // by sequence: so many of its next tokens; 0: it sits this step out
  int64_t decode_rows = 0;    // sequences that have one token to compute
  int64_t prompt_rows = 0;    // rows of sequences that have more
};

// Sequences that have one token to compute.
int64_t CountDecodeRows(std::span<const int64_t> pending);

// `pending`: tokens that each sequence has still to compute, at least 1, in order of arrival. One row for each that has
// one, and `prompt_budget` rows for all others together: half of them for the prompt that came first, so that it gets
// on whatever comes after it; the other half for the shortest prompts, so that a few words need not wait for a book.
StepPlan PlanStep(std::span<const int64_t> pending, int64_t prompt_budget);

}  // namespace moestro
