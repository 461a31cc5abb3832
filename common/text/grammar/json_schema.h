// JSON schemas as grammars of the texts that a model may write.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/grammar/budget.h"
#include "common/text/grammar/grammar.h"

namespace moestro::text::grammar {

// Every text of the grammar is JSON that the schema accepts. README.md says which of these texts it has, and which
// keywords are supported. INVALID_ARGUMENT names the place in the schema: what is malformed, what cannot be enforced,
// and what no value satisfies.
absl::StatusOr<Grammar> CompileJsonSchema(std::string_view schema, CompileBudget& budget);

// Any JSON object.
Grammar AnyJsonObject();

}  // namespace moestro::text::grammar
