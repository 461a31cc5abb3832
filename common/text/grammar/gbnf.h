// Reads GBNF, the notation of grammars that llama.cpp's clients send.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/grammar/budget.h"
#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {

// The root is the rule `root`. Supported: rules over several lines, literals, classes, `.`, groups, `|`, `*`, `+`, `?`,
// `{m}`, `{m,}`, `{m,n}`, `{,n}`, comments and, beyond GBNF, the notations of README.md. INVALID_ARGUMENT with the
// line.
absl::StatusOr<Grammar> ParseGbnf(std::string_view text, CompileBudget& budget);

}  // namespace moestro::text::grammar
