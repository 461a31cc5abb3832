#include "common/experts/expert_cache.h"

#include <algorithm>

namespace moestro::experts {

ExpertCache::ExpertCache(int64_t num_experts, std::span<const int64_t> slots, const NewPolicy& new_policy)
    : num_experts_(num_experts) {
  for (const int64_t count : slots) {
    layers_.push_back({.policy = new_policy(num_experts),
                       .held = std::vector<int32_t>(static_cast<size_t>(count), -1),
                       .slot_of = std::vector<int64_t>(static_cast<size_t>(num_experts), -1)});
  }
  uses_.reserve(static_cast<size_t>(num_experts));
  others_.reserve(static_cast<size_t>(num_experts));
}

void ExpertCache::Clear() {
  for (Layer& layer : layers_) {
    std::ranges::fill(layer.held, -1);
    std::ranges::fill(layer.slot_of, -1);
  }
}

std::span<const ExpertUse> ExpertCache::Take(int64_t moe_layer, std::span<const model::ExpertChoice> choices) {
  taken_ = &layers_[static_cast<size_t>(moe_layer)];
  uses_.assign(static_cast<size_t>(num_experts_), {});
  for (const model::ExpertChoice& choice : choices) {
    ExpertUse& use = uses_[static_cast<size_t>(choice.expert)];
    use.expert = choice.expert;
    use.slot = taken_->slot_of[static_cast<size_t>(choice.expert)];
    ++use.rows;
    use.weight += choice.weight;
  }
  std::erase_if(uses_, [](const ExpertUse& use) { return use.rows == 0; });
  taken_->policy->Use(uses_);
  return uses_;
}

int64_t ExpertCache::Hold(int32_t expert) {
  const int64_t slot = FindSlot(*taken_);
  if (slot < 0) return slot;
  int32_t& held = taken_->held[static_cast<size_t>(slot)];
  if (held >= 0) taken_->slot_of[static_cast<size_t>(held)] = -1;
  held = expert;
  taken_->slot_of[static_cast<size_t>(expert)] = slot;
  return slot;
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
