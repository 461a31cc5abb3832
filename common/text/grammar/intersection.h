// Texts that two automata accept.
#pragma once

#include "absl/status/statusor.h"
#include "common/text/grammar/automaton.h"
#include "common/text/grammar/budget.h"
#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {

// A grammar whose root is what both roots match. REQUIRES: no rule of either calls another. NOT_FOUND if no text is in
// both; INVALID_ARGUMENT if the result is too large.
absl::StatusOr<Grammar> Intersect(const Automaton& a, const Automaton& b, CompileBudget& budget);

}  // namespace moestro::text::grammar
