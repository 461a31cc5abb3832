#include "services/decode/experts/expert_cache.h"

#include <algorithm>
#include <functional>

namespace moestro {

int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts) {
  return std::min(budget_bytes / (expert_bytes * moe_layers), num_experts);
}

ExpertCache::ExpertCache(const Options& options, const NewPolicy& new_policy) : options_(options) {
  for (int64_t i = 0; i < options.moe_layers; ++i) {
    layers_.push_back({.policy = new_policy(options.num_experts),
                       .held = std::vector<int32_t>(static_cast<size_t>(options.slots), -1),
                       .slot_of = std::vector<int64_t>(static_cast<size_t>(options.num_experts), -1)});
  }
}

void ExpertCache::Clear() {
  for (Layer& layer : layers_) {
    std::ranges::fill(layer.held, -1);
    std::ranges::fill(layer.slot_of, -1);
  }
}

const ExpertCache::Pass& ExpertCache::Take(int64_t moe_layer, std::span<const ExpertChoice> choices) {
  Layer& layer = layers_[static_cast<size_t>(moe_layer)];
  const std::vector<ExpertUse> uses = Uses(choices);
  layer.policy->Use(uses);
  pass_.hits.clear();
  pass_.misses.clear();
  pass_.loads.clear();
  for (const ExpertUse& use : uses) {
    const int64_t slot = layer.slot_of[static_cast<size_t>(use.expert)];
    if (slot < 0) {
      pass_.misses.push_back(use);
    } else {
      pass_.hits.push_back({use, slot});
    }
  }
  std::vector<ExpertUse> wanted = pass_.misses;
  std::ranges::stable_sort(wanted, std::greater<>(), &ExpertUse::weight);
  for (const ExpertUse& miss : wanted) {
    const int64_t slot = std::ssize(pass_.loads) < options_.loads_per_pass ? FindSlot(layer, uses) : -1;
    if (slot < 0) break;
    int32_t& held = layer.held[static_cast<size_t>(slot)];
    if (held >= 0) layer.slot_of[static_cast<size_t>(held)] = -1;
    held = miss.expert;
    layer.slot_of[static_cast<size_t>(miss.expert)] = slot;
    pass_.loads.push_back({miss.expert, slot});
  }
  return pass_;
}

std::vector<ExpertUse> ExpertCache::Uses(std::span<const ExpertChoice> choices) const {
  std::vector<ExpertUse> all(static_cast<size_t>(options_.num_experts));
  for (const ExpertChoice& choice : choices) {
    ExpertUse& use = all[static_cast<size_t>(choice.expert)];
    use.expert = choice.expert;
    ++use.rows;
    use.weight += choice.weight;
  }
  std::erase_if(all, [](const ExpertUse& use) { return use.rows == 0; });
  return all;
}

int64_t ExpertCache::FindSlot(const Layer& layer, std::span<const ExpertUse> uses) {
  if (const auto free = std::ranges::find(layer.held, -1); free != layer.held.end()) return free - layer.held.begin();
  std::vector<int32_t> others;
  for (const int32_t expert : layer.held) {
    if (!std::ranges::binary_search(uses, expert, {}, &ExpertUse::expert)) others.push_back(expert);
  }
  return others.empty() ? -1 : layer.slot_of[static_cast<size_t>(layer.policy->Victim(others))];
}

}  // namespace moestro
