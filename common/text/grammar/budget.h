// What one constraint may cost from its text to the automaton, whatever multiplies inside it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/text/grammar/limits.h"

namespace moestro::text::grammar {

// One object for all stages of one constraint.
class CompileBudget {
 public:
  // A step is a JSON value or 16 bytes of it that are copied or compared, or a state or edge of the automaton: some 40
  // ns on a Zen 4. INVALID_ARGUMENT once there are none left.
  absl::Status Spend(int64_t steps) {
    left_ -= steps;
    if (left_ >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError("the grammar is too large: compiling it takes too many steps");
  }

 private:
  int64_t left_ = kMaxCompileSteps;
};

}  // namespace moestro::text::grammar
