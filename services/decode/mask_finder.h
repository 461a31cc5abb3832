// Finds what constraints allow next, beside the steps. A mask that takes long delays no step and no other mask that
// does not take long: it is tried on a quick lane, and otherwise found on a slow one, whose thread stands back.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/work_lane.h"
#include "common/text/grammar/token_constraint.h"
#include "services/decode/metrics.h"

namespace moestro::decode {

// For one thread; its searches go on in others.
class MaskFinder {
 public:
  // One mask. Whoever has it may not use the constraint before it is done. Its destructor gives the search up.
  class Search {
   public:
    ~Search() { state_->stop = true; }
    Search(const Search&) = delete;

    bool done() const { return state_->done; }
    // Valid until the constraint advances. Errors of TokenConstraint::Mask. REQUIRES: done().
    const absl::StatusOr<const text::grammar::TokenMask*>& mask() const { return state_->mask; }
    // It was dear, so the next one is likely to be. REQUIRES: done().
    bool is_dear() const;

   private:
    friend class MaskFinder;
    struct State {
      std::shared_ptr<text::grammar::TokenConstraint> constraint;
      absl::StatusOr<const text::grammar::TokenMask*> mask = nullptr;
      std::atomic<bool> stop = false;
      std::atomic<bool> done = false;
    };
    explicit Search(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  // `on_done` is called in a thread of the finder's after each search. All must outlive the finder.
  MaskFinder(DecodeMetrics& metrics, std::function<void()> on_done) : metrics_(metrics), on_done_(std::move(on_done)) {}

  // `dear`: see Search::is_dear. The constraint must not be used before the search is done.
  std::unique_ptr<Search> Find(std::shared_ptr<text::grammar::TokenConstraint> constraint, bool dear);

 private:
  void Try(const std::shared_ptr<Search::State>& state, int64_t steps);

  DecodeMetrics& metrics_;
  const std::function<void()> on_done_;
  WorkLane slow_{WorkLane::kBackground};
  WorkLane quick_;  // the first to be destroyed: it posts to the other
};

}  // namespace moestro::decode
