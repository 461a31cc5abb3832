#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/lexer.h"
#include "common/text/jinja/line_error.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/scoped.h"

namespace moestro::text::jinja {
namespace {

// Index of a parameter in `names`, which ends at the first empty one; -1 if absent.
int FindParameter(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

// One value per parameter; undefined if the call passes none.
absl::StatusOr<std::vector<Value>> Bind(std::span<const std::string_view> names, std::vector<Value> positional,
                                        std::vector<std::pair<std::string, Value>> named) {
  if (positional.size() > names.size()) {
    return absl::InvalidArgumentError(Concat("takes ", names.size(), " arguments, not ", positional.size()));
  }
  const size_t given = positional.size();
  std::vector<Value> values = std::move(positional);
  values.resize(names.size());
  for (auto& [name, value] : named) {
    const int position = FindParameter(names, name);
    if (position < 0) return absl::InvalidArgumentError(Concat("argument '", name, "' is not supported"));
    if (position < static_cast<int>(given))
      return absl::InvalidArgumentError(Concat("argument '", name, "' is given twice"));
    values[position] = std::move(value);
  }
  return values;
}

absl::StatusOr<Value> Apply(const Function& function, const Value& self, std::vector<Value> positional,
                            std::vector<std::pair<std::string, Value>> named, Budget& budget) {
  const auto end = std::find(function.parameters.begin(), function.parameters.end(), std::string_view());
  const std::span<const std::string_view> names(function.parameters.begin(), end);
  MOE_ASSIGN_OR_RETURN(std::vector<Value> values, Bind(names, std::move(positional), std::move(named)));
  values.resize(Function::kMaxParameters);
  return function.call(self, values, budget);
}

}  // namespace

absl::StatusOr<Evaluator::CallArguments> Evaluator::EvaluateArguments(const Arguments& arguments) {
  CallArguments values;
  for (const ExpressionPointer& argument : arguments.positional) {
    MOE_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    values.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : arguments.named) {
    MOE_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    values.named.emplace_back(name, std::move(value));
  }
  return values;
}

absl::StatusOr<Value> Evaluator::CallFunction(const Function& function, const Value& self, const Arguments& arguments,
                                              int line) {
  MOE_ASSIGN_OR_RETURN(CallArguments given, EvaluateArguments(arguments));
  const absl::StatusOr<Value> result =
      Apply(function, self, std::move(given.positional), std::move(given.named), budget_);
  if (result.ok()) return result;
  return AtLine(Annotate(result.status(), Concat("'", function.name, "'")), line);
}

absl::StatusOr<Value> Evaluator::CallMacro(const MacroNode& macro, CallArguments arguments, int line) {
  std::vector<std::string_view> names;
  for (const auto& [name, fallback] : macro.parameters) names.push_back(name);
  absl::StatusOr<std::vector<Value>> values = Bind(names, std::move(arguments.positional), std::move(arguments.named));
  if (!values.ok()) return AtLine(Annotate(values.status(), Concat("macro '", macro.name, "'")), line);
  Scope scope{{}, &globals_};
  const Scoped<Scope*> inside(&scope_, &scope);
  for (size_t i = 0; i < names.size(); ++i) {
    Value value = std::move((*values)[i]);
    if (value.IsUndefined()) {
      MOE_ASSIGN_OR_RETURN(value, EvaluateOptional(macro.parameters[i].second));
    }
    scope.variables[macro.parameters[i].first] = std::move(value);
  }
  MOE_ASSIGN_OR_RETURN(std::string text, Capture(macro.body));
  return Value(std::move(text));
}

absl::StatusOr<Value> Evaluator::CallBuiltin(Builtin builtin, CallArguments arguments) {
  switch (builtin) {
    case Builtin::kNamespace:
      if (!arguments.positional.empty()) return absl::InvalidArgumentError("namespace() takes named arguments only");
      namespaces_.push_back(std::make_unique<Namespace>(std::make_move_iterator(arguments.named.begin()),
                                                        std::make_move_iterator(arguments.named.end())));
      return Value(namespaces_.back().get());
    case Builtin::kDict:
      if (!arguments.positional.empty()) return absl::InvalidArgumentError("dict() takes named arguments only");
      return Value::MakeDict(std::move(arguments.named));
    case Builtin::kRange:
      return MakeRange(arguments);
    case Builtin::kRaiseException:
      break;
  }
  const Value message = arguments.positional.empty() ? Value() : arguments.positional[0];
  MOE_ASSIGN_OR_RETURN(const std::string text, ToText(message, &budget_));
  return absl::InvalidArgumentError(text);
}

// range(stop), range(start, stop), range(start, stop, step)
absl::StatusOr<Value> Evaluator::MakeRange(const CallArguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
    return absl::InvalidArgumentError("range() takes one to three integers");
  }
  for (const Value& value : given) {
    if (!value.IsIntegral()) return absl::InvalidArgumentError("range() takes one to three integers");
  }
  const int64_t start = given.size() > 1 ? given[0].Integral() : 0;
  const int64_t stop = given.size() > 1 ? given[1].Integral() : given[0].Integral();
  const int64_t step = given.size() > 2 ? given[2].Integral() : 1;
  if (step == 0) return absl::InvalidArgumentError("the step of range() must not be 0");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    MOE_RETURN_IF_ERROR(budget_.Charge(kEvaluationCost));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::MakeList(std::move(items));
}

}  // namespace moestro::text::jinja
