// The routed experts that a device holds: slots of each layer, whose experts change as passes use others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/experts/cache_policy.h"
#include "common/model/moe/gating.h"

namespace moestro::experts {

class ExpertCache {  // not thread-safe
 public:
  using NewPolicy = std::function<std::unique_ptr<CachePolicy>(int64_t num_experts)>;

  // slots: of each layer with experts, counted from the first one; at most num_experts each.
  ExpertCache(int64_t num_experts, std::span<const int64_t> slots, const NewPolicy& new_policy);

  // Registers the experts that a pass uses in a layer. Returns them in ascending id, each with its slot if it is held.
  // Valid until the next call.
  std::span<const ExpertUse> Take(int64_t moe_layer, std::span<const model::ExpertChoice> choices);
  // Holds an expert of the layer last taken, which it does not hold. Returns the slot: a free one, or that of an expert
  // which the pass does not use, so experts of one pass never evict each other; -1 if there is none.
  int64_t Hold(int32_t expert);
  // Frees all slots.
  void Clear();

 private:
  struct Layer {
    std::unique_ptr<CachePolicy> policy;
    std::vector<int32_t> held;     // by slot; -1: free
    std::vector<int64_t> slot_of;  // by expert; -1: not held
  };
  int64_t FindSlot(const Layer& layer);

  const int64_t num_experts_;
  std::vector<Layer> layers_;
  Layer* taken_ = nullptr;
  // Of the pass, kept to avoid allocations.
  std::vector<ExpertUse> uses_;
  std::vector<int32_t> others_;  // held and unused
};

}  // namespace moestro::experts
