#include "common/text/jinja/functions.h"

#include "common/text/concat.h"

namespace moestro::text::jinja {

absl::StatusOr<int64_t> IntegerArgument(const Value& argument, int64_t fallback, std::string_view name) {
  if (argument.IsUndefined() || argument.IsNone()) return fallback;
  if (argument.IsIntegral()) return argument.Integral();
  return absl::InvalidArgumentError(Concat("'", name, "' must be an integer, not ", argument.TypeName()));
}

absl::StatusOr<const std::string*> StringArgument(const Value& argument, std::string_view name) {
  if (const std::string* text = argument.AsString()) return text;
  return absl::InvalidArgumentError(Concat("'", name, "' must be a string, not ", argument.TypeName()));
}

}  // namespace moestro::text::jinja
