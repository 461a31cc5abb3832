// Constraints of whole answers: reasoning is free, what follows it has the asked form, or is a call in the model's
// syntax.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/inference/types.h"
#include "services/router/output/output_format.h"

namespace moestro::router {

// Calls that an answer must consist of.
struct CallRules {
  std::string_view tools;       // JSON text of the array of tools, as in text::Chat
  std::string name = {};        // of the only function that may be called; empty: any of the tools
  bool several = true;          // more than one call, where the syntax has that
  bool reasoning_open = false;  // as in ParserOptions
};

// A constraint whose texts NewParser splits into reasoning and calls of those functions, with arguments that follow the
// schema of the function. Two exceptions, for functions without "strict": true: a schema that cannot be enforced allows
// any object, and in tags a string is bound by its `enum` only. INVALID_ARGUMENT names the field of the tools;
// UNIMPLEMENTED: the format has no calls.
absl::StatusOr<Constraint> ConstrainToCalls(const OutputFormat& format, const CallRules& rules);

// `answer` for what follows the reasoning. Without a format of reasoning, `answer` itself. REQUIRES: it compiles.
Constraint AfterReasoning(const OutputFormat& format, bool reasoning_open, const Constraint& answer);

}  // namespace moestro::router
