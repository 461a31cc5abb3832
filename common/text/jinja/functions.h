// Filters, tests and methods: functions of a value and some arguments.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

struct Function {
  static constexpr int kMaxParameters = 4;
  // `arguments` has kMaxParameters values, undefined if not given, and then those of a variadic function.
  // INVALID_ARGUMENT for values of the wrong type.
  using Call = absl::StatusOr<Value> (*)(const Value& self, std::span<const Value> arguments, Budget& budget);

  std::string_view name;
  std::array<std::string_view, kMaxParameters> parameters;  // empty names at the end: fewer parameters
  Call call;
  // Positional arguments from this one on are the variadic ones; parameters from it on are passed by name. -1: none.
  int variadic_from = -1;
  bool takes_named = false;  // any named arguments: they come as a dict in arguments[0]
};

using NamedValues = std::vector<std::pair<std::string, Value>>;

// The arguments of a call, one value for each of `names`; undefined if the call passes none. INVALID_ARGUMENT for an
// argument that is unknown, given twice or one too many.
absl::StatusOr<std::vector<Value>> Bind(std::span<const std::string_view> names, std::vector<Value> positional,
                                        NamedValues named);
// Calls `function`. Errors as of Bind, and of the function.
absl::StatusOr<Value> Apply(const Function& function, const Value& self, std::vector<Value> positional,
                            NamedValues named, Budget& budget);

// Null if there is no such name. Pointers stay valid forever.
const Function* FindFilter(std::string_view name);
const Function* FindTest(std::string_view name);
// A filter of Jinja2 that is not here. All tests of Jinja2 are.
bool IsOtherFilter(std::string_view name);
// A method of Python's str, list or dict.
const Function* FindMethod(const Value& self, std::string_view name);

// The argument as an integer, or `fallback` if it is undefined or none.
absl::StatusOr<int64_t> IntegerArgument(const Value& argument, int64_t fallback, std::string_view name);
// The argument, which must be a string.
absl::StatusOr<const std::string*> StringArgument(const Value& argument, std::string_view name);

// The filters that the files of their kinds define; FindFilter looks through all.
std::span<const Function> TextFilters();
std::span<const Function> SequenceFilters();

// The value under a dotted path of names and positions ("function.name", "0.id", or an integer), as Jinja2's
// attribute arguments are written. INVALID_ARGUMENT for other types.
absl::StatusOr<Value> GetPath(const Value& object, const Value& path, Budget& budget);

}  // namespace moestro::text::jinja
