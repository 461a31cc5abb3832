// Decides where a layer's experts are computed. Pure: plans depend on the state alone, not on the clock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "common/experts/schedule.h"

namespace moestro::experts {

enum class Schedule {
  kFixed,     // held experts on the device, the others on the CPU
  kHybrid,    // the shortest makespan: HybridScheduler
  kOnDemand,  // all on the device, those that it does not hold after a load, as far as there are slots for loads
};

class ExpertScheduler {  // not thread-safe: keeps its memory
 public:
  virtual ~ExpertScheduler() = default;
  // Replaces the plan. Allocates nothing if the plan is reserved for the scheduler's experts.
  virtual void Plan(const LayerState& state, SchedulePlan& plan) = 0;
};

// For layers of up to so many experts.
std::unique_ptr<ExpertScheduler> NewScheduler(Schedule schedule, int64_t num_experts);

// Held experts on the device, the others on the CPU: the mapping of kTransformers and, where whole layers are held, of
// llama.cpp.
class FixedMapping final : public ExpertScheduler {
 public:
  void Plan(const LayerState& state, SchedulePlan& plan) override;
};

// AdapMoE's: loads what the device does not hold, most rows first. More than most_loads stay on the CPU.
class OnDemand final : public ExpertScheduler {
 public:
  void Plan(const LayerState& state, SchedulePlan& plan) override;
};

}  // namespace moestro::experts
