// From the text of a constraint to an automaton.
#pragma once

#include "absl/status/statusor.h"
#include "common/inference/types.h"
#include "common/text/grammar/automaton.h"
#include "common/text/grammar/budget.h"

namespace moestro::text::grammar {

// INVALID_ARGUMENT says what is wrong and where. Other errors are those of the budget. REQUIRES: the kind is not kNone.
absl::StatusOr<Automaton> CompileConstraint(const Constraint& constraint, CompileBudget& budget);

}  // namespace moestro::text::grammar
