// The rows of a batch, sorted by expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/moe/gating.h"

namespace moestro::model {

struct RoutedRow {
  int64_t row = 0;
  float weight = 0;
};

// Rows [begin, begin + count) of ExpertPlan::routed go through `expert`.
struct ExpertRows {
  int32_t expert = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

struct ExpertPlan {
  std::vector<RoutedRow> routed;    // by expert, then by row
  std::vector<ExpertRows> experts;  // experts with rows, in ascending id

  // Replaces the plan by that of these choices, reusing its memory. choices: [rows, per_row]; a row's choices are
  // different experts in [0, num_experts).
  void Sort(std::span<const ExpertChoice> choices, int64_t per_row, int64_t num_experts);
};

}  // namespace moestro::model
