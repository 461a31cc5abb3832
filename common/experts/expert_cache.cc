#include "common/experts/expert_cache.h"

#include <algorithm>
#include <numeric>

#include "common/tensor/dtype.h"

namespace moestro::experts {

ExpertCache::ExpertCache(int64_t num_experts, std::span<const int64_t> kept, int64_t spare, Policy policy)
    : num_experts_(num_experts), slots_(std::accumulate(kept.begin(), kept.end(), spare)) {
  for (const int64_t count : kept) {
    Layer& layer = layers_.emplace_back();
    layer.policy = NewPolicy(policy, num_experts);
    layer.kept = count;
    layer.held.reserve(static_cast<size_t>(count));
    layer.ahead.reserve(static_cast<size_t>(spare));
    layer.slot_of.resize(static_cast<size_t>(num_experts));
  }
  uses_.reserve(static_cast<size_t>(num_experts));
  others_.reserve(static_cast<size_t>(num_experts));
  empty_.reserve(static_cast<size_t>(slots_));
  Clear();
}

void ExpertCache::Clear() {
  for (Layer& layer : layers_) {
    layer.held.clear();
    layer.ahead.clear();
    std::ranges::fill(layer.slot_of, -1);
  }
  empty_.resize(static_cast<size_t>(slots_));
  std::iota(empty_.rbegin(), empty_.rend(), 0);
  reserved_ = 0;
  for (const Layer& layer : layers_) reserved_ += layer.kept;
  taken_ = nullptr;
}

int64_t ExpertCache::SlotOf(int64_t moe_layer, int32_t expert) const {
  return layers_[static_cast<size_t>(moe_layer)].slot_of[static_cast<size_t>(expert)];
}

int64_t ExpertCache::TakeEmpty() {
  const int64_t slot = empty_.back();
  empty_.pop_back();
  return slot;
}

void ExpertCache::EndPass() {
  if (taken_ == nullptr) return;
  for (const int32_t expert : taken_->ahead) {
    int64_t& slot = taken_->slot_of[static_cast<size_t>(expert)];
    empty_.push_back(slot);
    slot = -1;
  }
  taken_->ahead.clear();
}

std::span<const ExpertUse> ExpertCache::Take(int64_t moe_layer, std::span<const model::ExpertChoice> choices,
                                             std::span<const model::ExpertChoice> others) {
  EndPass();
  taken_ = &layers_[static_cast<size_t>(moe_layer)];
  uses_.assign(static_cast<size_t>(num_experts_), {});
  for (const model::ExpertChoice& choice : choices) {
    ExpertUse& use = uses_[static_cast<size_t>(choice.expert)];
    use.expert = choice.expert;
    use.slot = taken_->slot_of[static_cast<size_t>(choice.expert)];
    ++use.rows;
    use.weight += FromBf16(ToBf16(choice.weight));  // as in a recording, so that its replay decides the same
  }
  std::erase_if(taken_->ahead, [&](int32_t expert) {
    const bool is_unused = uses_[static_cast<size_t>(expert)].rows == 0;
    int64_t& slot = taken_->slot_of[static_cast<size_t>(expert)];
    if (is_unused) empty_.push_back(std::exchange(slot, -1));
    return is_unused;
  });
  std::erase_if(uses_, [](const ExpertUse& use) { return use.rows == 0; });
  taken_->policy->Use(uses_, others);
  return uses_;
}

int64_t ExpertCache::Load(int32_t expert) {
  taken_->ahead.push_back(expert);
  return taken_->slot_of[static_cast<size_t>(expert)] = TakeEmpty();
}

bool ExpertCache::Keep(int32_t expert) {
  if (!MakeRoom(*taken_)) return false;
  std::erase(taken_->ahead, expert);
  taken_->held.push_back(expert);
  --reserved_;
  return true;
}

bool ExpertCache::MakeRoom(Layer& layer) {
  if (layer.free() > 0) return true;
  others_.clear();
  for (const int32_t expert : layer.held) {
    const bool is_used = &layer == taken_ && std::ranges::binary_search(uses_, expert, {}, &ExpertUse::expert);
    if (!is_used) others_.push_back(expert);
  }
  if (others_.empty()) return false;
  const int32_t victim = layer.policy->Victim(others_);
  std::erase(layer.held, victim);
  ++reserved_;
  empty_.push_back(std::exchange(layer.slot_of[static_cast<size_t>(victim)], -1));
  return true;
}

void ExpertCache::KeepReserved(int64_t moe_layer, int32_t expert, int64_t slot) {
  Layer& layer = layers_[static_cast<size_t>(moe_layer)];
  int64_t& slot_of = layer.slot_of[static_cast<size_t>(expert)];
  if (slot_of >= 0 || !MakeRoom(layer)) {
    empty_.push_back(slot);
    return;
  }
  slot_of = slot;
  layer.held.push_back(expert);
  --reserved_;
}

int64_t ExpertCache::LoadAhead(int64_t moe_layer, int32_t expert) {
  Layer& layer = layers_[static_cast<size_t>(moe_layer)];
  layer.ahead.push_back(expert);
  return layer.slot_of[static_cast<size_t>(expert)] = TakeEmpty();
}

}  // namespace moestro::experts
