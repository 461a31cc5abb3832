// The routed experts that a device holds: the same number of every layer's, loaded when a pass misses them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/experts/cache_policy.h"
#include "common/model/moe/gating.h"

namespace moestro {

// Slots of each layer that a budget pays for; at most num_experts.
int64_t CacheSlots(int64_t budget_bytes, int64_t expert_bytes, int64_t moe_layers, int64_t num_experts);

class ExpertCache {  // not thread-safe
 public:
  using NewPolicy = std::function<std::unique_ptr<CachePolicy>(int64_t num_experts)>;
  struct Options {
    int64_t moe_layers = 0;
    int64_t num_experts = 0;
    int64_t slots = 0;           // of each layer
    int64_t loads_per_pass = 0;  // in a layer, at most: each is a copy of megabytes
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
    std::vector<Hit> hits;          // held when the pass came, in ascending id
    std::vector<ExpertUse> misses;  // not held then, in ascending id
    std::vector<Load> loads;        // those of the misses that are held from now on: of the greatest weights
  };
  // A pass takes these experts in a layer (counted from the first one with experts). Experts of the pass itself are
  // never given up for each other; the result is valid until the next call.
  const Pass& Take(int64_t moe_layer, std::span<const ExpertChoice> choices);
  // All slots are free again.
  void Clear();

 private:
  struct Layer {
    std::unique_ptr<CachePolicy> policy;
    std::vector<int32_t> held;     // by slot; -1: free
    std::vector<int64_t> slot_of;  // by expert; -1: not held
  };
  void NoteUses(std::span<const ExpertChoice> choices);
  // Of the layer, for an expert that it does not hold: free, or of one that the pass does not use; -1 if there is none.
  int64_t FindSlot(const Layer& layer);

  const Options options_;
  std::vector<Layer> layers_;
  Pass pass_;
  // Of the pass, too: kept for their memory.
  std::vector<ExpertUse> uses_;    // in ascending id
  std::vector<ExpertUse> wanted_;  // of the misses, by weight
  std::vector<int32_t> others_;    // held and not used
};

}  // namespace moestro
