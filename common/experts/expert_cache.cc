#include "common/experts/expert_cache.h"

#include <algorithm>
#include <utility>

namespace moestro::experts {

int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts) {
  return std::min(budget_bytes / (expert_bytes * moe_layers), num_experts);
}

ExpertCache::ExpertCache(const Options& options, const NewPolicy& new_policy) : options_(options) {
  for (int64_t i = 0; i < options.moe_layers; ++i) {
    layers_.push_back({.policy = new_policy(options.num_experts),
                       .held = std::vector<int32_t>(static_cast<size_t>(options.slots), -1),
                       .slot_of = std::vector<int64_t>(static_cast<size_t>(options.num_experts), -1)});
  }
  const auto slots = static_cast<size_t>(options.slots), experts = static_cast<size_t>(options.num_experts);
  pass_.hits.reserve(slots);
  pass_.misses.reserve(experts);
  pass_.loads.reserve(slots);
  wanted_.reserve(experts);
  others_.reserve(slots);
}

void ExpertCache::Clear() {
  for (Layer& layer : layers_) {
    std::ranges::fill(layer.held, -1);
    std::ranges::fill(layer.slot_of, -1);
  }
}

const ExpertCache::Pass& ExpertCache::Take(int64_t moe_layer, std::span<const model::ExpertChoice> choices) {
  Layer& layer = layers_[static_cast<size_t>(moe_layer)];
  NoteUses(choices);
  layer.policy->Use(uses_);
  pass_.hits.clear();
  pass_.misses.clear();
  pass_.loads.clear();
  for (const ExpertUse& use : uses_) {
    const int64_t slot = layer.slot_of[static_cast<size_t>(use.expert)];
    if (slot < 0) {
      pass_.misses.push_back(use);
    } else {
      pass_.hits.push_back({use, slot});
    }
  }
  wanted_.assign(pass_.misses.begin(), pass_.misses.end());
  std::ranges::sort(wanted_, {}, [](const ExpertUse& use) { return std::pair(-use.weight, use.expert); });
  for (const ExpertUse& miss : wanted_) {
    const int64_t slot = std::ssize(pass_.loads) < options_.loads_per_pass ? FindSlot(layer) : -1;
    if (slot < 0) break;
    int32_t& held = layer.held[static_cast<size_t>(slot)];
    if (held >= 0) layer.slot_of[static_cast<size_t>(held)] = -1;
    held = miss.expert;
    layer.slot_of[static_cast<size_t>(miss.expert)] = slot;
    pass_.loads.push_back({miss.expert, slot});
  }
  return pass_;
}

void ExpertCache::NoteUses(std::span<const model::ExpertChoice> choices) {
  uses_.assign(static_cast<size_t>(options_.num_experts), {});
  for (const model::ExpertChoice& choice : choices) {
    ExpertUse& use = uses_[static_cast<size_t>(choice.expert)];
    use.expert = choice.expert;
    ++use.rows;
    use.weight += choice.weight;
  }
  std::erase_if(uses_, [](const ExpertUse& use) { return use.rows == 0; });
}

int64_t ExpertCache::FindSlot(const Layer& layer) {
  if (const auto free = std::ranges::find(layer.held, -1); free != layer.held.end()) return free - layer.held.begin();
  others_.clear();
  for (const int32_t expert : layer.held) {
    if (!std::ranges::binary_search(uses_, expert, {}, &ExpertUse::expert)) others_.push_back(expert);
  }
  return others_.empty() ? -1 : layer.slot_of[static_cast<size_t>(layer.policy->Victim(others_))];
}

}  // namespace moestro::experts
