// Replacement policies: which experts of a layer to keep in a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/model/moe/gating.h"

namespace moestro::experts {

// An expert that a pass uses in a layer, for any number of rows.
struct ExpertUse {
  int32_t expert = 0;
  int32_t rows = 0;
  float weight = 0;   // sum of the rows' weights
  int64_t slot = -1;  // of device memory, in which it lies; -1: in none

  bool held() const { return slot >= 0; }
};

enum class Policy {
  kLru,          // evicts the least recently used
  kLfu,          // the least frequently used
  kMrs,          // the one with the smallest average score: MrsPolicy
  kFirstLayers,  // none: the first layers hold all their experts, the others none, for good
};

class CachePolicy {  // one layer's; not thread-safe
 public:
  virtual ~CachePolicy() = default;
  // The experts of the next pass, in ascending id, and those that were next to be chosen for its rows, with their
  // scores.
  virtual void Use(std::span<const ExpertUse> uses, std::span<const model::ExpertChoice> others) = 0;
  // The expert to evict, from `held`: experts that are cached and unused by this pass, at least one. Of equal ones the
  // lowest id.
  virtual int32_t Victim(std::span<const int32_t> held) const = 0;
};

// For a layer of so many experts.
std::unique_ptr<CachePolicy> NewPolicy(Policy policy, int64_t num_experts);

}  // namespace moestro::experts
