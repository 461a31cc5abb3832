#include "common/experts/hybrid_scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moestro::experts {

HybridScheduler::HybridScheduler(int64_t num_experts) {
  missing_.reserve(static_cast<size_t>(num_experts));
  held_.reserve(static_cast<size_t>(num_experts));
}

void HybridScheduler::Sort(const LayerState& state) {
  missing_.clear();
  held_.clear();
  for (int32_t i = 0; i < std::ssize(state.uses); ++i) {
    const ExpertUse& use = state.uses[static_cast<size_t>(i)];
    (use.held() ? held_ : missing_)
        .push_back({i, use.rows, state.host_seconds(use.rows), state.costs.device.At(use.rows)});
  }
  for (std::vector<Item>* items : {&missing_, &held_}) {
    std::ranges::sort(*items, {}, [](const Item& item) { return std::pair(-item.rows, item.place); });
  }
}

HybridScheduler::Choice HybridScheduler::Best(const LayerState& state) const {
  const ExpertCosts& costs = state.costs;
  const size_t most_loads = std::min(missing_.size(), static_cast<size_t>(state.most_loads));
  double host = 0;  // of the experts on the CPU
  for (const Item& item : missing_) host += item.host;
  double held = 0;  // of the held experts on the device
  for (const Item& item : held_) held += item.device;
  double loaded = 0;                               // of the loaded ones, on the device
  double after_bus = 0;                            // when the device has ended these, if it waited for the bus alone
  double bus = state.bus_busy + costs.load_start;  // when the last of them is there
  size_t moved = 0;
  Choice best;
  double shortest = std::numeric_limits<double>::infinity();
  const auto host_end = [&](size_t loads) {
    return loads == missing_.size() && moved == 0 ? 0 : costs.host_start + costs.launch + host;
  };
  const auto device_end = [&](size_t loads) {
    if (loads == 0 && moved == held_.size()) return 0.0;
    return std::max(state.device_start() + held + loaded, after_bus);
  };
  const auto try_it = [&](size_t loads) {
    const double end = std::max(host_end(loads), device_end(loads));
    if (end < shortest) {
      shortest = end;
      best = {loads, moved};
    }
  };
  double all = host;
  for (const Item& item : held_) all += item.host;
  const double all_on_host = costs.host_start + all / costs.host_beside;  // beside which nothing runs
  for (size_t loads = 0;; ++loads) {
    try_it(loads);
    while (moved < held_.size() && host_end(loads) < device_end(loads)) {
      const Item& item = held_[held_.size() - 1 - moved++];
      held -= item.device;
      host += item.host;
      try_it(loads);
    }
    if (loads == most_loads) return all_on_host < shortest ? Choice{0, held_.size()} : best;
    const Item& next = missing_[loads];
    host -= next.host;
    loaded += next.device;
    bus += costs.load;
    after_bus = std::max(after_bus, bus) + next.device;
  }
}

void HybridScheduler::Plan(const LayerState& state, SchedulePlan& plan) {
  Sort(state);
  const auto [loads, moved] = Best(state);
  plan.Clear();
  const size_t kept = held_.size() - moved;
  for (size_t i = 0; i < kept; ++i) plan.device.push_back(held_[i].place);
  for (size_t i = kept; i < held_.size(); ++i) plan.host.push_back(held_[i].place);
  for (size_t i = 0; i < loads; ++i) {
    plan.device.push_back(missing_[i].place);
    plan.loads.push_back(missing_[i].place);
  }
  for (size_t i = loads; i < missing_.size(); ++i) plan.host.push_back(missing_[i].place);
  SetEnds(state, plan);
}

}  // namespace moestro::experts
