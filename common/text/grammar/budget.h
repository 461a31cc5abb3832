// What work on one constraint may cost.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "common/text/grammar/limits.h"

namespace moestro::text::grammar {

// How much a thread does for one mask before it leaves the rest to another, or to nobody.
struct Effort {
  int64_t steps = kMaxMaskSteps;
  const std::atomic<bool>* stop = nullptr;  // true: nobody wants the mask any more

  bool IsSpent(int64_t taken) const { return taken > steps || (stop != nullptr && stop->load()); }
};

// From the text of a constraint to its automaton, whatever multiplies inside it. One object for all stages.
class CompileBudget {
 public:
  CompileBudget() = default;
  // `check` is called every few milliseconds; its error ends the work.
  explicit CompileBudget(std::function<absl::Status()> check) : check_(std::move(check)) {}
  // For a thread that others wait for: most constraints need no more.
  static CompileBudget Quick() {
    CompileBudget budget;
    budget.left_ = kQuickCompileSteps;
    budget.is_quick_ = true;
    return budget;
  }

  // A step is a JSON value or 16 bytes of it that are copied or compared, or a state or edge of the automaton: some 40
  // ns on a Zen 4. Once there are none left, INVALID_ARGUMENT, or RESOURCE_EXHAUSTED of a quick budget.
  absl::Status Spend(int64_t steps) {
    left_ -= steps;
    if (left_ < 0) {
      if (is_quick_) return absl::ResourceExhaustedError("the quick budget is spent");
      return absl::InvalidArgumentError("the grammar is too large: compiling it takes too many steps");
    }
    if (check_ == nullptr || !ended_.ok() || (until_check_ -= steps) > 0) return ended_;
    until_check_ = kStepsBetweenChecks;
    return ended_ = check_();
  }

  // For text that is copied or compared.
  absl::Status SpendBytes(size_t bytes) { return Spend(static_cast<int64_t>(bytes / kBytesPerStep)); }

  // Nothing was refused for the budget or the check: what has been found is true of the constraint.
  bool is_kept() const { return left_ >= 0 && ended_.ok(); }
  // Nothing is known of the constraint: another budget may suffice.
  bool is_interrupted() const { return !ended_.ok() || (is_quick_ && left_ < 0); }

 private:
  static constexpr size_t kBytesPerStep = 16;
  static constexpr int64_t kStepsBetweenChecks = 64 * 1024;

  int64_t left_ = kMaxCompileSteps;
  bool is_quick_ = false;
  std::function<absl::Status()> check_ = nullptr;
  int64_t until_check_ = kStepsBetweenChecks;
  absl::Status ended_;
};

}  // namespace moestro::text::grammar
