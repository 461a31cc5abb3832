// Filters, tests and methods: functions of a value and up to three arguments.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

struct Function {
  static constexpr int kMaxParameters = 3;
  // `arguments` has one value per parameter, undefined if not given. INVALID_ARGUMENT for values of the wrong type.
  using Call = absl::StatusOr<Value> (*)(const Value& self, std::span<const Value> arguments, Budget& budget);

  std::string_view name;
  std::array<std::string_view, kMaxParameters> parameters;  // empty names at the end: fewer parameters
  Call call;
};

// Null if there is no such name. Pointers stay valid forever.
const Function* FindFilter(std::string_view name);
const Function* FindTest(std::string_view name);
// A method of Python's str or dict.
const Function* FindMethod(const Value& self, std::string_view name);

// The argument as an integer, or `fallback` if it is undefined or none.
absl::StatusOr<int64_t> IntegerArgument(const Value& argument, int64_t fallback, std::string_view name);
// The argument, which must be a string.
absl::StatusOr<const std::string*> StringArgument(const Value& argument, std::string_view name);

}  // namespace moestro::text::jinja
