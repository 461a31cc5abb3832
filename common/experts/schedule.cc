#include "common/experts/schedule.h"

namespace moestro::experts {

void SchedulePlan::Reserve(int64_t experts) {
  for (std::vector<int32_t>* list : {&host, &device, &loads}) list->reserve(static_cast<size_t>(experts));
}

void SchedulePlan::Clear() {
  for (std::vector<int32_t>* list : {&host, &device, &loads}) list->clear();
}

void SetEnds(const LayerState& state, SchedulePlan& plan) {
  const ExpertCosts& costs = state.costs;
  const auto rows = [&](int32_t place) { return state.uses[static_cast<size_t>(place)].rows; };
  plan.host_end = plan.host.empty() ? 0 : costs.host_start + (plan.device.empty() ? 0 : costs.launch);
  for (const int32_t place : plan.host) {
    plan.host_end += plan.device.empty() ? costs.host.At(rows(place)) : state.host_seconds(rows(place));
  }
  plan.device_end = plan.device.empty() ? 0 : state.device_start();
  plan.bus_end = state.bus_busy + (plan.loads.empty() ? 0 : costs.load_start);
  const size_t held = plan.device.size() - plan.loads.size();
  for (size_t i = 0; i < plan.device.size(); ++i) {
    if (i >= held) {
      plan.bus_end += costs.load;
      plan.device_end = std::max(plan.device_end, plan.bus_end);
    }
    plan.device_end += costs.device.At(rows(plan.device[i]));
  }
}

}  // namespace moestro::experts
