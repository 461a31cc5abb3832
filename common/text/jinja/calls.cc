#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/lexer.h"
#include "common/text/jinja/line_error.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/scoped.h"

namespace moestro::text::jinja {
namespace {

// Of strftime_now(): a date in words takes far less.
constexpr size_t kMaxDateBytes = 1024;

}  // namespace

absl::StatusOr<Evaluator::CallArguments> Evaluator::EvaluateArguments(const Arguments& arguments) {
  CallArguments values;
  for (const auto& [argument, unpacked] : arguments.positional) {
    MOE_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    if (!unpacked) {
      values.positional.push_back(std::move(value));
      continue;
    }
    absl::StatusOr<std::vector<Value>> items = Items(value, budget_);
    MOE_RETURN_IF_ERROR(AtLine(items.status(), argument->line));
    std::move(items->begin(), items->end(), std::back_inserter(values.positional));
  }
  for (const auto& [name, argument] : arguments.named) {
    MOE_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    if (!name.empty()) {
      values.named.emplace_back(name, std::move(value));
      continue;
    }
    if (value.AsDict() == nullptr) return TemplateError(argument->line, "'**' needs a dict");
    for (const auto& [key, member] : value.AsDict()->items) {
      MOE_RETURN_IF_ERROR(AtLine(budget_.Charge(static_cast<int64_t>(key.size()) + kEvaluationCost), argument->line));
      values.named.emplace_back(key, member);
    }
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

absl::StatusOr<Value> Evaluator::CallMacro(const MacroNode& macro, const Scope& around, CallArguments arguments,
                                           const Value& caller, int line) {
  std::vector<std::string_view> names;
  for (const auto& [name, fallback] : macro.parameters) names.push_back(name);
  absl::StatusOr<std::vector<Value>> values = Bind(names, std::move(arguments.positional), std::move(arguments.named));
  if (!values.ok()) return AtLine(Annotate(values.status(), Concat("macro '", macro.name, "'")), line);
  Scope scope{{}, &around};
  const Scoped<Scope*> inside(&scope_, &scope);
  if (macro.takes_caller) scope.variables["caller"] = caller;
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

// Whether an expression is the variable of the loop that runs.
bool Evaluator::IsLoop(const Expression& expression, const Value& value) const {
  const auto* name = std::get_if<NameNode>(&expression.node);
  return name != nullptr && name->name == "loop" && loop_ != nullptr && value.AsDict() != nullptr;
}

// loop(items): what the body of a recursive loop writes for them.
absl::StatusOr<Value> Evaluator::CallLoop(const Arguments& arguments, int line) {
  if (!loop_->node->recursive) return TemplateError(line, "the loop is not recursive");
  MOE_ASSIGN_OR_RETURN(const CallArguments given, EvaluateArguments(arguments));
  if (given.positional.size() != 1 || !given.named.empty()) return TemplateError(line, "loop() takes the items");
  std::string captured;
  Scope scope{{}, loop_->around};
  const Scoped<std::string*> into(&sink_, &captured);
  const Scoped<Scope*> inside(&scope_, &scope);
  MOE_RETURN_IF_ERROR(ExecuteLoop(*loop_->node, given.positional[0], loop_->depth + 1, line));
  return Value(std::move(captured));
}

// loop.changed(values...): whether they differ from those of the last call.
absl::StatusOr<Value> Evaluator::LoopChanged(const Arguments& arguments, int line) {
  MOE_ASSIGN_OR_RETURN(CallArguments given, EvaluateArguments(arguments));
  absl::StatusOr<Value> values = Value::MakeList(std::move(given.positional));
  MOE_RETURN_IF_ERROR(AtLine(values.status(), line));
  const absl::StatusOr<bool> same = Compare(Comparison::kEqual, loop_->last, *values, budget_);
  MOE_RETURN_IF_ERROR(AtLine(same.status(), line));
  loop_->last = *std::move(values);
  return Value(!*same);
}

// loop.cycle(values...): one after the other.
absl::StatusOr<Value> Evaluator::LoopCycle(const Arguments& arguments, int line) {
  MOE_ASSIGN_OR_RETURN(const CallArguments given, EvaluateArguments(arguments));
  if (given.positional.empty()) return TemplateError(line, "loop.cycle() takes values");
  return given.positional[loop_->index % given.positional.size()];
}

absl::StatusOr<Value> Evaluator::CallBuiltin(Builtin builtin, CallArguments arguments) {
  switch (builtin) {
    case Builtin::kNamespace: {
      MOE_ASSIGN_OR_RETURN(NamedValues members, MappingArguments(std::move(arguments), "namespace"));
      namespaces_.push_back(std::make_unique<Namespace>());
      for (auto& [name, value] : members) (*namespaces_.back())[name] = std::move(value);
      return Value(namespaces_.back().get());
    }
    case Builtin::kDict: {
      MOE_ASSIGN_OR_RETURN(NamedValues members, MappingArguments(std::move(arguments), "dict"));
      return Value::MakeDict(std::move(members));
    }
    case Builtin::kRange:
      return MakeRange(arguments);
    case Builtin::kStrftimeNow:
      return StrftimeNow(arguments);
    case Builtin::kRaiseException:
      break;
  }
  const Value message = arguments.positional.empty() ? Value() : arguments.positional[0];
  MOE_ASSIGN_OR_RETURN(const std::string text, ToText(message, &budget_));
  return absl::InvalidArgumentError(text);
}

// The members that dict() and namespace() take: those of a dict, if one is given, and the named arguments.
absl::StatusOr<NamedValues> Evaluator::MappingArguments(CallArguments arguments, std::string_view function) {
  NamedValues members;
  if (!arguments.positional.empty()) {
    const Dict* dict = arguments.positional[0].AsDict();
    if (dict == nullptr || arguments.positional.size() > 1) {
      return absl::InvalidArgumentError(Concat(function, "() takes a dict and named arguments only"));
    }
    for (const auto& [name, value] : dict->items) {
      MOE_RETURN_IF_ERROR(budget_.Charge(static_cast<int64_t>(name.size()) + kEvaluationCost));
      members.emplace_back(name, value);
    }
  }
  std::move(arguments.named.begin(), arguments.named.end(), std::back_inserter(members));
  return members;
}

// strftime_now(format): the local time, as transformers gives it to templates.
absl::StatusOr<Value> Evaluator::StrftimeNow(const CallArguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return absl::InvalidArgumentError("strftime_now() takes one format");
  }
  MOE_ASSIGN_OR_RETURN(const std::string* format, StringArgument(arguments.positional[0], "format"));
  MOE_RETURN_IF_ERROR(budget_.Charge(static_cast<int64_t>(format->size() + kMaxDateBytes)));
  if (format->find('\0') != std::string::npos) return absl::InvalidArgumentError("'format' has a NUL character");
  const std::time_t now = clock_();
  std::tm local{};
  localtime_r(&now, &local);
  // A date without time zone: %z and %Z are empty.
  local.tm_isdst = -1;
  local.tm_zone = "";
  std::array<char, kMaxDateBytes> buffer;
  // The space tells an empty date from one that is too long.
  const size_t length = std::strftime(buffer.data(), buffer.size(), (*format + " ").c_str(), &local);
  if (length == 0) return absl::InvalidArgumentError(Concat("the date is longer than ", kMaxDateBytes, " bytes"));
  return Value(std::string_view(buffer.data(), length - 1));
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
