#include "common/experts/expert_planner.h"

#include <algorithm>

namespace moestro::experts {
namespace {

// Of an expert: smaller parts of a load are not worth a copy of their own.
constexpr double kLeastPart = 1.0 / 16;

std::vector<int64_t> KeptByLayer(const ExpertPlanner::Options& options) {
  std::vector<int64_t> kept(static_cast<size_t>(options.moe_layers), options.slots);
  if (options.policy != Policy::kFirstLayers) return kept;
  const int64_t whole = options.slots * options.moe_layers / options.num_experts;
  for (int64_t layer = 0; layer < options.moe_layers; ++layer) {
    kept[static_cast<size_t>(layer)] = layer < whole ? options.num_experts : 0;
  }
  return kept;
}

}  // namespace

int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts,
                   int64_t most_loads) {
  return std::clamp<int64_t>((budget_bytes / expert_bytes - most_loads) / moe_layers, 0, num_experts);
}

ExpertPlanner::ExpertPlanner(const Options& options)
    : options_(options),
      cache_(options.num_experts, KeptByLayer(options), options.most_loads, options.policy),
      scheduler_(NewScheduler(options.schedule, options.num_experts)),
      prefetch_(options.schedule, options.num_experts) {
  pass_.plan.Reserve(options.num_experts);
  pass_.loads.reserve(static_cast<size_t>(options.most_loads));
  pass_.behind.reserve(static_cast<size_t>(options.most_loads + 1));
  missing_.reserve(static_cast<size_t>(options.num_experts));
  other_uses_.reserve(static_cast<size_t>(options.num_experts));
  other_plan_.Reserve(options.num_experts);
  Clear();
}

std::span<const ExpertPlanner::Load> ExpertPlanner::Clear() {
  cache_.Clear();
  backlog_ = 0;
  long_load_.reset();
  first_.clear();
  if (options_.policy != Policy::kFirstLayers) return first_;
  for (int64_t layer = 0; std::ssize(first_) < kept(); ++layer) {
    cache_.Take(layer, {});
    for (int32_t expert = 0; expert < options_.num_experts; ++expert) {
      first_.push_back({layer, expert, cache_.Load(expert)});
      cache_.Keep(expert);
    }
  }
  return first_;
}

const ExpertPlanner::Pass& ExpertPlanner::Next(int64_t moe_layer, const PassRouting& routing) {
  pass_.uses = cache_.Take(moe_layer, routing.choices, routing.others);
  pass_.loads.clear();
  pass_.behind.clear();
  SchedulePlan& plan = pass_.plan;
  shared_ = costs_.shared.At(routing.rows);
  scheduler_->Plan(StateOf(pass_.uses, cache_.spare()), plan);
  pass_.foreseen_hits = 0;
  for (const ExpertUse& use : pass_.uses) {
    if (!use.held() || cache_.IsKept(use.expert)) continue;
    ++pass_.foreseen_hits;
    cache_.Keep(use.expert);
  }
  for (const int32_t place : plan.loads) {
    const int32_t expert = pass_.uses[static_cast<size_t>(place)].expert;
    pass_.loads.push_back({moe_layer, expert, cache_.Load(expert)});
    cache_.Keep(expert);
  }
  const double end = plan.makespan() + costs_.between;
  double bus = plan.bus_end + (plan.loads.empty() ? costs_.load_start : 0);
  LoadAhead(moe_layer, routing, bus, end);
  pass_.ahead = std::ssize(pass_.behind);
  pass_.ended = std::ssize(pass_.loads) + pass_.ahead;
  LoadPart(bus, end);
  LoadForLater(moe_layer, bus, end);
  backlog_ = pass_.behind.empty() ? std::max(0.0, plan.bus_end - end) : std::max(0.0, bus - end);
  return pass_;
}

LayerState ExpertPlanner::StateOf(std::span<const ExpertUse> uses, int64_t most_loads) const {
  return {.uses = uses, .costs = costs_, .most_loads = most_loads, .bus_busy = backlog_, .device_busy = shared_};
}

bool ExpertPlanner::MayLoad() const {
  return cache_.spare() > 0 && std::ssize(pass_.loads) + std::ssize(pass_.behind) < options_.most_loads;
}

// The bus is used while it is idle, so no other pass waits for what may not be needed.
void ExpertPlanner::LoadAhead(int64_t moe_layer, const PassRouting& routing, double& bus, double end) {
  const int64_t layers = std::min(std::ssize(routing.foreseen), options_.moe_layers - 1 - moe_layer);
  if (layers == 0 || !MayLoad() || bus + costs_.load > end) return;
  for (int64_t ahead = 1; ahead <= layers; ++ahead) {
    std::vector<ExpertUse>& uses = prefetch_.layer(ahead);
    uses.assign(static_cast<size_t>(options_.num_experts), {});
    for (const int32_t expert : routing.foreseen[static_cast<size_t>(ahead - 1)]) {
      ExpertUse& use = uses[static_cast<size_t>(expert)];
      use.expert = expert;
      ++use.rows;
      use.slot = cache_.SlotOf(moe_layer + ahead, expert);
    }
    std::erase_if(uses, [](const ExpertUse& use) { return use.rows == 0; });
  }
  prefetch_.Begin(layers, {.costs = costs_, .most_loads = options_.most_loads, .device_busy = shared_});
  while (MayLoad() && bus + costs_.load <= end) {
    const std::optional<ImpactPrefetch::Choice> choice = prefetch_.Next();
    if (!choice.has_value()) return;
    const int64_t layer = moe_layer + choice->ahead;
    pass_.behind.push_back({layer, choice->expert, cache_.LoadAhead(layer, choice->expert)});
    prefetch_.Take(*choice);
    bus += costs_.load;
  }
}

bool ExpertPlanner::WouldGain(int32_t place) {
  other_uses_.assign(pass_.uses.begin(), pass_.uses.end());
  other_uses_[static_cast<size_t>(place)].slot = 0;  // any: the plan asks only whether it is held
  scheduler_->Plan(StateOf(other_uses_, options_.most_loads), other_plan_);
  return other_plan_.makespan() < pass_.plan.makespan();
}

// The load that goes on over several passes gets what is left of the bus's idle time.
void ExpertPlanner::LoadPart(double& bus, double end) {
  if (!long_load_.has_value() || bus >= end) return;
  Load& load = *long_load_;
  const double rest = 1 - load.end, part = std::min(rest, (end - bus) / costs_.load);
  if (part < std::min(rest, kLeastPart)) return;
  bus += part * costs_.load;
  load.begin = load.end;
  load.end = part == rest ? 1 : load.begin + part;
  pass_.behind.push_back(load);
  if (load.end < 1) return;
  ++pass_.ended;
  cache_.KeepReserved(load.moe_layer, load.expert, load.slot);
  long_load_.reset();
}

// Missed experts, those of the greatest weights first, while the bus is idle. A fixed mapping loads one in any case. A
// hybrid schedule loads one where the layer may keep more, and none where it would not have made this pass shorter; if
// the bus is not idle for long enough, it loads one over several passes.
void ExpertPlanner::LoadForLater(int64_t moe_layer, double& bus, double end) {
  if (options_.schedule == Schedule::kOnDemand) return;
  const auto use_at = [&](int32_t place) -> const ExpertUse& { return pass_.uses[static_cast<size_t>(place)]; };
  missing_.clear();
  for (const int32_t place : pass_.plan.host) {
    if (!use_at(place).held()) missing_.push_back(place);
  }
  std::ranges::sort(missing_, {},
                    [&](int32_t place) { return std::pair(-use_at(place).weight, use_at(place).expert); });
  const bool is_fixed = options_.schedule == Schedule::kFixed;
  if (!is_fixed && !missing_.empty() && !WouldGain(missing_.front())) return;
  bool is_first = true;
  for (const int32_t place : missing_) {
    if (!MayLoad()) return;
    const bool is_idle = bus + costs_.load <= end;
    const int32_t expert = use_at(place).expert;
    if (!is_idle && !(is_first && (is_fixed || cache_.free() > 0))) {
      const bool may_begin = end - bus >= kLeastPart * costs_.load;
      if (is_fixed || long_load_.has_value() || cache_.most_kept() == 0 || !may_begin) return;
      long_load_ = Load{moe_layer, expert, cache_.Reserve(), 0, 0};
      return LoadPart(bus, end);
    }
    const int64_t slot = cache_.Load(expert);
    if (!cache_.Keep(expert)) return;
    pass_.behind.push_back({moe_layer, expert, slot});
    ++pass_.ended;
    bus += costs_.load;
    is_first = false;
  }
}

}  // namespace moestro::experts
