// Values as text: what {{ }} prints and what tojson writes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::jinja {

// Python's str(): undefined is empty, none is "None", a list is "['a', 1]". Charges the budget for the result.
absl::StatusOr<std::string> ToText(const Value& value, Budget* budget);

// Python's json.dumps without ASCII escapes; `indent` < 0 writes one line with ", " and ": ".
// INVALID_ARGUMENT for what JSON does not have.
absl::StatusOr<std::string> ToJson(const Value& value, int indent, Budget* budget);

// Python's repr() of a float: the shortest digits that read back as the same number.
std::string FloatText(double value);

}  // namespace moestro::jinja
