#include "common/experts/schedulers.h"

#include <tuple>

#include "common/experts/hybrid_scheduler.h"

namespace moestro::experts {
namespace {

// Held experts on the device, the others on the CPU.
void MapByPlace(const LayerState& state, SchedulePlan& plan) {
  plan.Clear();
  for (int32_t i = 0; i < std::ssize(state.uses); ++i) {
    (state.uses[static_cast<size_t>(i)].held() ? plan.device : plan.host).push_back(i);
  }
  SetEnds(state, plan);
}

}  // namespace

std::unique_ptr<ExpertScheduler> NewScheduler(Schedule schedule, int64_t num_experts) {
  switch (schedule) {
    case Schedule::kFixed:
      return std::make_unique<FixedMapping>();
    case Schedule::kHybrid:
      return std::make_unique<HybridScheduler>(num_experts);
    case Schedule::kOnDemand:
      return std::make_unique<OnDemand>();
  }
  return nullptr;
}

void FixedMapping::Plan(const LayerState& state, SchedulePlan& plan) { MapByPlace(state, plan); }

void OnDemand::Plan(const LayerState& state, SchedulePlan& plan) {
  MapByPlace(state, plan);
  std::ranges::sort(plan.host, {}, [&](int32_t place) {
    const ExpertUse& use = state.uses[static_cast<size_t>(place)];
    return std::pair(-use.rows, use.expert);
  });
  const auto loads = std::min(std::ssize(plan.host), static_cast<std::ptrdiff_t>(state.most_loads));
  plan.loads.assign(plan.host.begin(), plan.host.begin() + loads);
  plan.host.erase(plan.host.begin(), plan.host.begin() + loads);
  plan.device.insert(plan.device.end(), plan.loads.begin(), plan.loads.end());
  SetEnds(state, plan);
}

}  // namespace moestro::experts
