// What each pass does with a layer's experts: the cache says which the device holds, the scheduler where each one is
// computed and what is loaded. Decode plans with it, and a recording is replayed on it, so both count the same hits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/experts/expert_cache.h"
#include "common/experts/schedulers.h"

namespace moestro::experts {

// Slots of each layer that the budget pays for beside places for loads; at most num_experts, 0: it does not.
int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts,
                   int64_t most_loads);

class ExpertPlanner {  // not thread-safe
 public:
  struct Options {
    int64_t moe_layers = 0;
    int64_t num_experts = 0;
    int64_t slots = 0;       // for experts that stay, of each layer on average
    int64_t most_loads = 0;  // of a layer's pass
    Schedule schedule = Schedule::kFixed;
  };
  explicit ExpertPlanner(const Options& options);

  // Of a layer, counted from the first one with experts. A layer split gives the first layers one for every expert, and
  // the others none.
  int64_t slots(int64_t moe_layer) const { return slots_[static_cast<size_t>(moe_layer)]; }
  // Without them plans take all as free. They change while the cache is empty.
  void SetCosts(ExpertCosts costs) { costs_ = std::move(costs); }
  const ExpertCosts& costs() const { return costs_; }

  // A load whose expert stays, and its slot.
  struct Held {
    int32_t place = 0;  // in uses
    int64_t slot = 0;
  };
  struct Pass {
    std::span<const ExpertUse> uses;
    SchedulePlan plan;
    std::vector<Held> held;  // of plan.loads and plan.later; of the latter, all
  };
  // The result is valid until the next call.
  const Pass& Next(int64_t moe_layer, std::span<const model::ExpertChoice> choices);
  // The slots are empty from now on, but for those of a layer split: slot i holds expert i of its layer for good.
  void Clear();

 private:
  const Options options_;
  const std::vector<int64_t> slots_;
  ExpertCache cache_;
  const std::unique_ptr<ExpertScheduler> scheduler_;
  ExpertCosts costs_;
  // Seconds of loads behind the last pass. Time between passes is not counted: plans would depend on the clock, and a
  // recording would not tell what they were.
  double backlog_ = 0;
  Pass pass_;
};

}  // namespace moestro::experts
