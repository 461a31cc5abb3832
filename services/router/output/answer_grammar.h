// Constraints of whole answers: reasoning is free, what follows it has the asked form, or is a call in the model's
// syntax.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/inference/types.h"
#include "services/router/output/output_format.h"
#include "services/router/text/constraint_check.h"

namespace moestro::router {

// Calls in an answer.
struct CallRules {
  std::string_view tools;               // JSON text of the array of tools, as in text::Chat
  std::vector<std::string> names = {};  // of the functions that may be called; empty: any of the tools
  bool several = true;                  // more than one call, where the syntax has that
  bool reasoning_open = false;          // as in ParserOptions
  // nullopt: the answer consists of calls. Otherwise it may be a text instead: one of this constraint, or, of kind
  // kNone, any text, which calls may follow.
  std::optional<Constraint> otherwise = std::nullopt;
};

// Whether the syntax has a mark that no other text has. Only then `otherwise` can be given.
bool CanLeaveCallsOpen(const OutputFormat& format);

// Whether a function of the tools has "strict": true.
bool HasStrictTool(std::string_view tools);

// A constraint whose texts NewParser splits into reasoning and calls of those functions, with arguments that follow the
// schema of the function. Two exceptions, for functions without "strict": true: a schema that cannot be enforced allows
// any object, and in tags a string is bound by its `enum` only. INVALID_ARGUMENT names the field of the tools;
// UNIMPLEMENTED: the format has no calls. Other
// errors are those of `constraints`.
absl::StatusOr<Constraint> ConstrainToCalls(const OutputFormat& format, const CallRules& rules,
                                            ConstraintCheck& constraints);

// `answer` for what follows the reasoning. Without a format of reasoning, `answer` itself. REQUIRES: it compiles.
Constraint AfterReasoning(const OutputFormat& format, bool reasoning_open, const Constraint& answer);

}  // namespace moestro::router
