#include "common/experts/expert_planner.h"

#include <algorithm>

namespace moestro::experts {
namespace {

std::vector<int64_t> LayerSlots(const ExpertPlanner::Options& options) {
  std::vector<int64_t> slots(static_cast<size_t>(options.moe_layers), options.slots);
  if (options.schedule != Schedule::kLayerSplit) return slots;
  const int64_t whole = options.slots * options.moe_layers / options.num_experts;
  for (int64_t layer = 0; layer < options.moe_layers; ++layer) {
    slots[static_cast<size_t>(layer)] = layer < whole ? options.num_experts : 0;
  }
  return slots;
}

}  // namespace

int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts,
                   int64_t most_loads) {
  return std::clamp<int64_t>((budget_bytes / expert_bytes - most_loads) / moe_layers, 0, num_experts);
}

ExpertPlanner::ExpertPlanner(const Options& options)
    : options_(options),
      slots_(LayerSlots(options)),
      cache_(options.num_experts, slots_, [](int64_t experts) { return std::make_unique<LruPolicy>(experts); }),
      scheduler_(NewScheduler(options.schedule, options.num_experts)) {
  pass_.plan.Reserve(options.num_experts);
  pass_.held.reserve(static_cast<size_t>(options.num_experts));
  Clear();
}

void ExpertPlanner::Clear() {
  cache_.Clear();
  backlog_ = 0;
  if (options_.schedule != Schedule::kLayerSplit) return;
  for (int64_t layer = 0; layer < options_.moe_layers && slots(layer) > 0; ++layer) {
    cache_.Take(layer, {});
    for (int32_t expert = 0; expert < options_.num_experts; ++expert) cache_.Hold(expert);
  }
}

const ExpertPlanner::Pass& ExpertPlanner::Next(int64_t moe_layer, std::span<const model::ExpertChoice> choices) {
  pass_.uses = cache_.Take(moe_layer, choices);
  SchedulePlan& plan = pass_.plan;
  scheduler_->Plan({.uses = pass_.uses, .costs = costs_, .most_loads = options_.most_loads, .bus_busy = backlog_},
                   plan);
  pass_.held.clear();
  const auto hold = [&](int32_t place) {
    const int64_t slot = cache_.Hold(pass_.uses[static_cast<size_t>(place)].expert);
    if (slot >= 0) pass_.held.push_back({place, slot});
    return slot >= 0;
  };
  for (const int32_t place : plan.loads) hold(place);
  std::erase_if(plan.later, [&](int32_t place) { return !hold(place); });
  backlog_ = std::max(0.0, plan.bus_end - plan.makespan()) + static_cast<double>(plan.later.size()) * costs_.load;
  return pass_;
}

}  // namespace moestro::experts
