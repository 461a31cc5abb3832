// Lark's notation of grammars, as vLLM's clients send it, in the words of GBNF.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moestro::text::grammar {

// Whether the first rule is written "name:", and not "name ::=".
bool IsLark(std::string_view text);

// The same grammar in GBNF, line by line, so that errors in it have the lines of `text`. What a rule captures is left
// out, because it does not change what the rule matches. INVALID_ARGUMENT, with the line, for what GBNF cannot say:
// %ignore, %import, flags of literals and expressions, and rules with other attributes.
absl::StatusOr<std::string> LarkToGbnf(std::string_view text);

}  // namespace moestro::text::grammar
