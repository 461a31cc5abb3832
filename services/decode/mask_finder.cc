#include "services/decode/mask_finder.h"

#include <chrono>
#include <utility>

#include "common/base/exceptions.h"
#include "common/text/grammar/limits.h"

namespace moestro::decode {

using text::grammar::kMaxMaskSteps;
using text::grammar::kQuickMaskSteps;

bool MaskFinder::Search::is_dear() const { return state_->constraint->steps() > kQuickMaskSteps; }

std::unique_ptr<MaskFinder::Search> MaskFinder::Find(std::shared_ptr<text::grammar::TokenConstraint> constraint,
                                                     bool dear) {
  auto state = std::make_shared<Search::State>();
  state->constraint = std::move(constraint);
  const int64_t steps = dear ? kMaxMaskSteps : kQuickMaskSteps;
  (dear ? slow_ : quick_).Post([this, state, steps] { Try(state, steps); });
  return std::unique_ptr<Search>(new Search(std::move(state)));
}

void MaskFinder::Try(const std::shared_ptr<Search::State>& state, int64_t steps) {
  if (state->stop) return;
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status found = CatchExceptions([&] {
    state->mask = state->constraint->Mask({.steps = steps, .stop = &state->stop});
    return absl::OkStatus();
  });
  if (!found.ok()) state->mask = absl::InternalError(found.message());  // not RESOURCE_EXHAUSTED: no second try
  metrics_.mask_seconds.Increment(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (state->stop) return;
  if (absl::IsResourceExhausted(state->mask.status())) {
    return slow_.Post([this, state] { Try(state, kMaxMaskSteps); });
  }
  state->done = true;
  on_done_();
}

}  // namespace moestro::decode
