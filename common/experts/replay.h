// Replays a recording of passes on a planner of experts, without the model.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/experts/expert_planner.h"
#include "common/model/routing_trace.h"

namespace moestro::experts {

struct CacheCounts {
  int64_t hits = 0;      // experts that a pass used in a layer while they were held
  int64_t misses = 0;    // experts that were not held
  int64_t row_hits = 0;  // hits, counted by rows that use the expert
  int64_t row_misses = 0;
  int64_t loads = 0;  // loaded experts

  double HitRate() const { return Share(hits, misses); }
  double RowHitRate() const { return Share(row_hits, row_misses); }

 private:
  static double Share(int64_t part, int64_t rest) {
    return part + rest == 0 ? 0 : static_cast<double>(part) / static_cast<double>(part + rest);
  }
};

// Replays the file's passes on the planner, whose shape is the file's: the passes that generate tokens only, or with
// `prompts` all passes. Returns the file's errors.
absl::StatusOr<CacheCounts> ReplayExperts(model::RoutingTraceReader& reader, bool prompts, ExpertPlanner& planner);

}  // namespace moestro::experts
