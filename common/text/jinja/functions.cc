#include "common/text/jinja/functions.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"

namespace moestro::text::jinja {

absl::StatusOr<std::vector<Value>> Bind(std::span<const std::string_view> names, std::vector<Value> positional,
                                        NamedValues named) {
  if (positional.size() > names.size()) {
    return absl::InvalidArgumentError(Concat("takes ", names.size(), " arguments, not ", positional.size()));
  }
  const size_t given = positional.size();
  std::vector<Value> values = std::move(positional);
  values.resize(names.size());
  std::vector<bool> bound(names.size());
  for (auto& [name, value] : named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return absl::InvalidArgumentError(Concat("argument '", name, "' is not supported"));
    const size_t position = found - names.begin();
    if (position < given || bound[position]) {
      return absl::InvalidArgumentError(Concat("argument '", name, "' is given twice"));
    }
    bound[position] = true;
    values[position] = std::move(value);
  }
  return values;
}

absl::StatusOr<Value> Apply(const Function& function, const Value& self, std::vector<Value> positional,
                            NamedValues named, Budget& budget) {
  const auto end = std::find(function.parameters.begin(), function.parameters.end(), std::string_view());
  const std::span<const std::string_view> names(function.parameters.begin(), end);
  std::vector<Value> variadic;
  if (function.variadic_from >= 0 && positional.size() > static_cast<size_t>(function.variadic_from)) {
    const auto rest = positional.begin() + function.variadic_from;
    variadic.assign(std::make_move_iterator(rest), std::make_move_iterator(positional.end()));
    positional.resize(static_cast<size_t>(function.variadic_from));
  }
  Value members;
  if (function.takes_named) {
    MOE_ASSIGN_OR_RETURN(members, Value::MakeDict(std::exchange(named, {})));
  }
  MOE_ASSIGN_OR_RETURN(std::vector<Value> values, Bind(names, std::move(positional), std::move(named)));
  if (function.takes_named) values = {std::move(members)};
  values.resize(Function::kMaxParameters);
  values.insert(values.end(), std::make_move_iterator(variadic.begin()), std::make_move_iterator(variadic.end()));
  return function.call(self, values, budget);
}

absl::StatusOr<Value> GetPath(const Value& object, const Value& path, Budget& budget) {
  if (path.IsIntegral()) return GetItem(object, path, budget);
  MOE_ASSIGN_OR_RETURN(const std::string* text, StringArgument(path, "attribute"));
  MOE_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(text->size())));
  Value value = object;
  for (std::string_view rest = *text;;) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    int64_t position = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), position);
    const bool is_position = error == std::errc() && end == name.data() + name.size() && position >= 0;
    MOE_ASSIGN_OR_RETURN(value,
                         is_position ? GetItem(value, Value(position), budget) : GetAttribute(value, name, budget));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

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
