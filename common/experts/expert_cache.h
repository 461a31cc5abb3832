// The routed experts that a device holds: the same number in every layer, loaded when a pass misses them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/experts/cache_policy.h"
#include "common/model/moe/gating.h"

namespace moestro::experts {

// Slots per layer that fit into the budget; at most num_experts.
int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts);

class ExpertCache {  // not thread-safe
 public:
  using NewPolicy = std::function<std::unique_ptr<CachePolicy>(int64_t num_experts)>;
  struct Options {
    int64_t moe_layers = 0;
    int64_t num_experts = 0;
    int64_t slots = 0;           // per layer
    int64_t loads_per_pass = 0;  // maximum per layer: each load copies megabytes
  };

  ExpertCache(const Options& options, const NewPolicy& new_policy);

  struct Hit {
    ExpertUse use;
    int64_t slot = 0;
  };
  struct Load {
    int32_t expert = 0;
    int64_t slot = 0;
  };
  struct Pass {
    std::vector<Hit> hits;          // held before the pass, in ascending id
    std::vector<ExpertUse> misses;  // not held before the pass, in ascending id
    std::vector<Load> loads;        // the misses that are held from now on: those of the greatest weights
  };
  // Registers the experts that a pass uses in a layer (counted from the first MoE layer). Experts of one pass never
  // evict each other. The result is valid until the next call.
  const Pass& Take(int64_t moe_layer, std::span<const model::ExpertChoice> choices);
  // Frees all slots.
  void Clear();

 private:
  struct Layer {
    std::unique_ptr<CachePolicy> policy;
    std::vector<int32_t> held;     // by slot; -1: free
    std::vector<int64_t> slot_of;  // by expert; -1: not held
  };
  void NoteUses(std::span<const model::ExpertChoice> choices);
  // A slot for an expert that the layer does not hold: a free one, or one whose expert the pass does not use; -1 if
  // none.
  int64_t FindSlot(const Layer& layer);

  const Options options_;
  std::vector<Layer> layers_;
  Pass pass_;
  // Buffers of the current pass, kept to avoid allocations.
  std::vector<ExpertUse> uses_;    // in ascending id
  std::vector<ExpertUse> wanted_;  // the misses, by weight
  std::vector<int32_t> others_;    // held and unused by the pass
};

}  // namespace moestro::experts
