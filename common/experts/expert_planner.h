// What each pass does with a layer's experts: the cache says which the device holds, the scheduler where each one is
// computed, and what the bus has time for is loaded for the passes that follow. Decode plans with it, and a recording
// is replayed on it, so both count the same hits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/experts/expert_cache.h"
#include "common/experts/prefetch.h"
#include "common/experts/schedulers.h"

namespace moestro::experts {

// Experts of each layer that the budget pays for beside spare slots for loads; at most num_experts, 0: it does not.
int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts,
                   int64_t most_loads);

// What routers say of a pass.
struct PassRouting {
  std::span<const model::ExpertChoice> choices;  // of all rows
  int64_t rows = 1;                              // of the pass
  // The experts that were next to be chosen, with their scores, of all rows. Only Policy::kMrs looks at them.
  std::span<const model::ExpertChoice> others = {};
  // The experts that the next layer would choose, the second next, ...: each once for each row that it would have.
  std::span<const std::vector<int32_t>> foreseen = {};
};

class ExpertPlanner {  // not thread-safe
 public:
  struct Options {
    int64_t moe_layers = 0;
    int64_t num_experts = 0;
    int64_t slots = 0;       // for experts that are kept, of each layer on average
    int64_t most_loads = 0;  // of a layer's pass, those for the passes that follow included: each needs a spare slot
    Schedule schedule = Schedule::kFixed;
    Policy policy = Policy::kLru;
  };
  explicit ExpertPlanner(const Options& options);

  // Of device memory: each for one expert of any layer.
  int64_t slots() const { return cache_.slots(); }
  // Experts that all layers keep at most.
  int64_t kept() const { return slots() - options_.most_loads; }
  // Without them plans take all as free. They change while the cache is empty.
  void SetCosts(ExpertCosts costs) { costs_ = std::move(costs); }
  const ExpertCosts& costs() const { return costs_; }

  struct Load {
    int64_t moe_layer = 0;
    int32_t expert = 0;
    int64_t slot = 0;
    double begin = 0;  // which part of the expert's bytes, 0 to 1
    double end = 1;
  };
  struct Pass {
    std::span<const ExpertUse> uses;
    SchedulePlan plan;
    std::vector<Load> loads;    // plan.loads
    std::vector<Load> behind;   // those that follow them on the bus, for other passes
    int64_t ahead = 0;          // of `behind`, the first so many are for the next layers
    int64_t ended = 0;          // experts that are there after all of these: the last may be a part of one
    int64_t foreseen_hits = 0;  // of uses: loaded ahead
  };
  // The result is valid until the next call.
  const Pass& Next(int64_t moe_layer, const PassRouting& routing);
  // The device holds nothing from now on but what this returns, which is to be loaded: the first layers of
  // Policy::kFirstLayers.
  std::span<const Load> Clear();

 private:
  bool MayLoad() const;
  LayerState StateOf(std::span<const ExpertUse> uses, int64_t most_loads) const;
  // Whether the pass would be shorter if the expert at this place in uses were held.
  bool WouldGain(int32_t place);
  void LoadAhead(int64_t moe_layer, const PassRouting& routing, double& bus, double end);
  void LoadForLater(int64_t moe_layer, double& bus, double end);
  void LoadPart(double& bus, double end);

  const Options options_;
  ExpertCache cache_;
  const std::unique_ptr<ExpertScheduler> scheduler_;
  ImpactPrefetch prefetch_;
  ExpertCosts costs_;
  // Seconds of loads that the last pass has left on the bus. What passes between passes beside costs_.between is not
  // counted: plans would depend on the clock, and a recording would not tell what they were.
  double backlog_ = 0;
  // A load for later passes that takes longer than the bus is idle in one: what was loaded last.
  std::optional<Load> long_load_;
  double shared_ = 0;  // seconds of the pass's shared expert
  Pass pass_;
  std::vector<Load> first_;       // of Clear
  std::vector<int32_t> missing_;  // in uses, on the CPU
  // Of WouldGain.
  std::vector<ExpertUse> other_uses_;
  SchedulePlan other_plan_;
};

}  // namespace moestro::experts
