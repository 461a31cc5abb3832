// Numbers of a schema: bounds and multipleOf, on decimal digits.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/text/grammar/budget.h"
#include "common/text/grammar/json_text.h"
#include "common/text/grammar/schema_merge.h"

namespace moestro::text::grammar {

// An integer or a number. INVALID_ARGUMENT for bounds that are no numbers, and where no number of the digits that
// JsonText has fits.
absl::StatusOr<NodeId> CompileNumber(const Schema& schema, bool is_integer, const std::string& where, JsonText& json,
                                     CompileBudget& budget);

}  // namespace moestro::text::grammar
