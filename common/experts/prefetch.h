// Which experts to load ahead of the layers that need them: HybriMoE, section IV-C, "impact-driven prefetching".
//
// The routers of the next layers foresee from this layer's input which experts they will choose. An expert's impact is
// the time by which the scheduler's plan of its layer gets shorter if the device holds it. The expert of the greatest
// impact comes first, of equal ones that of the nearer layer. Of a layer, the missing expert with the most rows is
// tried: it is what takes the CPU longest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/experts/schedulers.h"

namespace moestro::experts {

class ImpactPrefetch {  // not thread-safe: keeps its memory
 public:
  // For layers of up to so many experts, planned by this schedule.
  ImpactPrefetch(Schedule schedule, int64_t num_experts);

  // The uses of a layer that comes in `ahead` layers, 1 or more, as they are foreseen; to be filled by the caller.
  std::vector<ExpertUse>& layer(int64_t ahead);
  // When `layers` of them are filled. `state` is theirs, but for its uses; its costs are referred to.
  void Begin(int64_t layers, const LayerState& state);

  struct Choice {
    int64_t ahead = 0;
    int32_t expert = 0;
  };
  // The expert to load next, if any has an impact.
  std::optional<Choice> Next() const;
  // It is held from now on.
  void Take(const Choice& choice);

 private:
  struct Foreseen {
    std::vector<ExpertUse> uses;
    int64_t candidate = -1;  // in uses
    double makespan = 0;
    double shorter = 0;  // with the candidate
    double impact() const { return makespan - shorter; }
  };
  // Finds the candidate and its impact.
  void Try(Foreseen& layer);
  double Makespan(const Foreseen& layer);

  const int64_t num_experts_;
  const std::unique_ptr<ExpertScheduler> scheduler_;
  SchedulePlan plan_;
  std::vector<Foreseen> layers_;  // by `ahead` - 1
  int64_t count_ = 0;
  std::optional<LayerState> state_;
};

}  // namespace moestro::experts
