// Regular expressions as nodes of a grammar: the part of ECMA-262's syntax that has no memory and no look-around.
#pragma once

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {

struct PatternOptions {
  // The expression may match anywhere in the text, except where ^ or $ says otherwise, as a JSON schema's `pattern`.
  // Otherwise it is the whole text; then a ^ at the beginning and a $ at the end change nothing.
  bool anywhere = false;
  // How one character of a set is written in the text.
  absl::FunctionRef<NodeId(Grammar&, const CodePointSet&)> write;
};

// Characters, escapes (\d \w \s and their complements, \t \n \r \f \v \0 \xHH \uHHHH \u{H...} \cX), `.`, classes,
// groups,
// `|`, and repetitions, lazy ones too (they match the same texts). ^ and $ at the two ends of an alternative of the
// whole expression. INVALID_ARGUMENT names what is malformed, UNIMPLEMENTED what is not supported, and the character
// where it stands.
absl::StatusOr<NodeId> ParsePattern(std::string_view pattern, const PatternOptions& options, Grammar* grammar);

// A grammar of the texts that the expression matches as a whole.
absl::StatusOr<Grammar> ParseRegex(std::string_view pattern);

}  // namespace moestro::text::grammar
