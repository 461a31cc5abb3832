// Parses a whole template.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"

namespace moestro::text::jinja {

// INVALID_ARGUMENT with the line for anything outside the supported subset of Jinja: {{ }}, if, for (with filter, else,
// break, continue), set (values, blocks, namespace attributes), macro at the top level, raw, comments.
absl::StatusOr<Body> Parse(std::string_view source);

}  // namespace moestro::text::jinja
