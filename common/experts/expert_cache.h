// The routed experts that a device holds. Each layer has as many as it may keep; a few slots beside are spare, for
// experts that are loaded for a pass, or ahead of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/experts/cache_policy.h"
#include "common/model/moe/gating.h"

namespace moestro::experts {

class ExpertCache {  // not thread-safe
 public:
  // kept: experts that each layer keeps, counted from the first one with experts; at most num_experts each.
  ExpertCache(int64_t num_experts, std::span<const int64_t> kept, int64_t spare, Policy policy);

  // Of all layers, the spare ones included. Slots are 0, 1, ...
  int64_t slots() const { return slots_; }

  // A pass begins: registers the experts that it uses in a layer, and those that were next to be chosen. Returns the
  // former in ascending id, each with its slot if it is held, kept or loaded ahead. What was loaded ahead for the layer
  // and is not used is given up. Valid until the next call.
  std::span<const ExpertUse> Take(int64_t moe_layer, std::span<const model::ExpertChoice> choices,
                                  std::span<const model::ExpertChoice> others = {});

  int64_t spare() const { return std::ssize(empty_) - reserved_; }
  // The layer last taken: how many experts it keeps at most, and how many more without evicting one.
  int64_t most_kept() const { return taken_->kept; }
  int64_t free() const { return taken_->free(); }
  // The next three: of the layer last taken. Whether it keeps an expert: what it holds beside was loaded ahead or for
  // the pass.
  bool IsKept(int32_t expert) const { return std::ranges::find(taken_->held, expert) != taken_->held.end(); }
  // A spare slot for an expert that it does not hold, for this pass.
  // REQUIRES spare() > 0.
  int64_t Load(int32_t expert);
  // From now on the layer keeps what it loaded, ahead or for this pass, if it may keep one more or if it keeps one that
  // the pass does not use, so experts of one pass never evict each other. Otherwise the slot is spare again from the
  // next pass on. Returns whether it keeps it.
  bool Keep(int32_t expert);

  // Where an expert of any layer lies; -1: nowhere.
  int64_t SlotOf(int64_t moe_layer, int32_t expert) const;
  // A spare slot for an expert of a layer that does not hold it, until a pass takes the layer. REQUIRES spare() > 0.
  int64_t LoadAhead(int64_t moe_layer, int32_t expert);

  // A spare slot for a load that takes several passes: of no layer until it is kept or given back. REQUIRES
  // spare() > 0.
  int64_t Reserve() { return TakeEmpty(); }
  // The slot's expert is there: from now on the layer keeps it as after Keep. If it may not, or holds it already, the
  // slot is spare again.
  void KeepReserved(int64_t moe_layer, int32_t expert, int64_t slot);

  // Nothing is held any more.
  void Clear();

 private:
  struct Layer {
    std::unique_ptr<CachePolicy> policy;
    int64_t kept = 0;              // at most
    std::vector<int32_t> held;     // experts that are kept
    std::vector<int32_t> ahead;    // experts that are loaded ahead, or for the pass
    std::vector<int64_t> slot_of;  // by expert; -1: not held

    int64_t free() const { return kept - std::ssize(held); }
  };
  int64_t TakeEmpty();
  // Experts that the pass took from those loaded ahead or for it, and does not keep, give up their slots.
  void EndPass();
  bool MakeRoom(Layer& layer);

  const int64_t num_experts_;
  int64_t slots_ = 0;
  std::vector<Layer> layers_;
  std::vector<int64_t> empty_;  // slots
  int64_t reserved_ = 0;        // of these, for what layers may keep
  Layer* taken_ = nullptr;
  // Of the pass, kept to avoid allocations.
  std::vector<ExpertUse> uses_;
  std::vector<int32_t> others_;  // held and unused
};

}  // namespace moestro::experts
