// Values as text: the output of {{ }} and of tojson.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

// Python's str(): undefined is empty, none is "None", a list is "['a', 1]". Charges the budget for the result.
absl::StatusOr<std::string> ToText(const Value& value, Budget* budget);

// The options of Python's json.dumps.
struct JsonStyle {
  bool lines = false;  // each member on a line of its own, after `indent` for each level
  std::string indent = {};
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii = false;  // other characters as \uXXXX
  bool sort_keys = false;
};
// INVALID_ARGUMENT for values without a JSON form.
absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style, Budget* budget);

// Python's repr() of a float: the fewest digits that read back as the same number.
std::string FloatText(double value);

}  // namespace moestro::text::jinja
