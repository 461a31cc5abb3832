// Replays a recording of passes on a planner of experts, without the model.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/experts/expert_planner.h"
#include "common/model/routing_trace.h"

namespace moestro::experts {

struct CacheCounts {
  int64_t hits = 0;      // experts that a pass used in a layer while they were held
  int64_t misses = 0;    // experts that were not held
  int64_t row_hits = 0;  // hits, counted by rows that use the expert
  int64_t row_misses = 0;
  int64_t loads = 0;          // all
  int64_t loads_ahead = 0;    // of these, foreseen by earlier layers
  int64_t foreseen_hits = 0;  // of hits, loaded ahead
  double seconds = 0;         // of all passes and layers, by the planner's costs, with what is between layers

  double HitRate() const { return Share(hits, misses); }
  double RowHitRate() const { return Share(row_hits, row_misses); }

 private:
  static double Share(int64_t part, int64_t rest) {
    return part + rest == 0 ? 0 : static_cast<double>(part) / static_cast<double>(part + rest);
  }
};

// Gives the planner, whose shape is the model's, a pass of a recording, layer by layer: choices, next-best experts, and
// the predictions of up to prefetch_layers earlier layers, as far as they are recorded.
class ExpertReplay {  // not thread-safe
 public:
  ExpertReplay(const model::RoutingTraceModel& model, int64_t prefetch_layers, ExpertPlanner& planner);
  void Add(const model::RoutingStep& step);
  const CacheCounts& counts() const { return counts_; }

 private:
  const model::RoutingTraceModel model_;
  ExpertPlanner& planner_;
  CacheCounts counts_;
  // Of a layer, kept to avoid allocations.
  std::vector<model::ExpertChoice> choices_;
  std::vector<model::ExpertChoice> others_;
  std::vector<std::vector<int32_t>> foreseen_;
};

// Replays the file's passes: those that generate tokens only, or with `prompts` all. Returns the file's errors.
absl::StatusOr<CacheCounts> ReplayExperts(model::RoutingTraceReader& reader, bool prompts, int64_t prefetch_layers,
                                          ExpertPlanner& planner);

}  // namespace moestro::experts
