// JSON text of a client as a value of a template.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

// Nesting of objects and arrays: leaves room in kMaxValueDepth for the message around them.
inline constexpr int kMaxJsonDepth = 48;

// Makes the strings and keys of the result of those in the text.
using JsonText = std::function<std::string(std::string_view)>;

// Keys keep their order; of a duplicate key, the later value counts, as in Python. A value takes fifty times as much
// memory as its text, so that `values_left` bounds their number, and each value counts it down. INVALID_ARGUMENT with
// the position for what is not JSON in UTF-8, RESOURCE_EXHAUSTED for too many values, and nesting deeper
// than kMaxJsonDepth.
absl::StatusOr<Value> ReadJson(std::string_view text, const JsonText& make_text, int64_t* values_left);

}  // namespace moestro::text::jinja
