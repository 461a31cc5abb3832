// From the text of a constraint to an automaton.
#pragma once

#include "absl/status/statusor.h"
#include "common/inference/types.h"
#include "common/text/grammar/automaton.h"

namespace moestro::text::grammar {

// INVALID_ARGUMENT says what is wrong and where. REQUIRES: the kind is not kNone.
absl::StatusOr<Automaton> CompileConstraint(const Constraint& constraint);

}  // namespace moestro::text::grammar
