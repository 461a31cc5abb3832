// Python's operators on values. INVALID_ARGUMENT for unsupported types or numbers. All charge the budget for what they
// read and make.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

// With the five characters of HTML as entities.
absl::StatusOr<std::string> Escaped(const std::string& text, Budget& budget);

absl::StatusOr<Value> ApplyUnary(UnaryOperator op, const Value& operand);
absl::StatusOr<Value> ApplyBinary(BinaryOperator op, const Value& left, const Value& right, Budget& budget);
absl::StatusOr<bool> Compare(Comparison comparison, const Value& left, const Value& right, Budget& budget);

}  // namespace moestro::text::jinja
