#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/lexer.h"
#include "common/text/jinja/line_error.h"
#include "common/text/jinja/print.h"
#include "common/text/jinja/scoped.h"

namespace moestro::text::jinja {

Evaluator::Evaluator(Variables variables, Clock clock)
    : globals_{std::move(variables), nullptr}, clock_(std::move(clock)) {
  globals_.variables["namespace"] = Value(Builtin::kNamespace);
  globals_.variables["range"] = Value(Builtin::kRange);
  globals_.variables["dict"] = Value(Builtin::kDict);
  globals_.variables["raise_exception"] = Value(Builtin::kRaiseException);
  globals_.variables["strftime_now"] = Value(Builtin::kStrftimeNow);
}

absl::StatusOr<std::string> Evaluator::Render(const Body& body) {
  MOE_RETURN_IF_ERROR(Execute(body));
  return std::move(output_);
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Body& body) {
  const Scoped<int> level(&depth_, depth_ + 1);
  for (const Statement& statement : body) {
    if (depth_ > kMaxEvaluationDepth) return TooDeep(statement.line);
    MOE_RETURN_IF_ERROR(AtLine(budget_.Charge(kEvaluationCost), statement.line));
    MOE_ASSIGN_OR_RETURN(const Flow flow,
                         std::visit([&](const auto& node) { return Execute(node, statement.line); }, statement.node));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

absl::Status Evaluator::Emit(std::string_view text, int line) {
  MOE_RETURN_IF_ERROR(AtLine(budget_.Charge(static_cast<int64_t>(text.size())), line));
  if (static_cast<int64_t>(sink_->size() + text.size()) > kMaxOutputBytes) {
    return AtLine(absl::ResourceExhaustedError(Concat("the rendered text is over ", kMaxOutputBytes, " bytes")), line);
  }
  sink_->append(text);
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const TextNode& node, int line) {
  MOE_RETURN_IF_ERROR(Emit(node.text, line));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const OutputNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
  if (const std::string* text = value.AsString()) {
    MOE_RETURN_IF_ERROR(Emit(*text, line));
  } else {
    const absl::StatusOr<std::string> printed = ToText(value, &budget_);
    MOE_RETURN_IF_ERROR(AtLine(printed.status(), line));
    MOE_RETURN_IF_ERROR(Emit(*printed, line));
  }
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const IfNode& node, int) {
  for (const auto& [condition, body] : node.branches) {
    MOE_ASSIGN_OR_RETURN(const Value holds, Evaluate(*condition));
    if (holds.IsTrue()) return Execute(body);
  }
  return Execute(node.otherwise);
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const ForNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*node.iterable));
  return ExecuteLoop(node, iterable, /*depth=*/0, line);
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecuteLoop(const ForNode& node, const Value& iterable, int64_t depth,
                                                       int line) {
  MOE_ASSIGN_OR_RETURN(const std::vector<Value> items, LoopItems(node, iterable, line));
  if (!items.empty()) return RunLoop(node, items, depth, line);
  Scope scope{{}, scope_};
  const Scoped<Scope*> inside(&scope_, &scope);
  return Execute(node.otherwise);
}

// The items that pass the loop's filter.
absl::StatusOr<std::vector<Value>> Evaluator::LoopItems(const ForNode& node, const Value& iterable, int line) {
  absl::StatusOr<std::vector<Value>> items = Items(iterable, budget_);
  MOE_RETURN_IF_ERROR(AtLine(items.status(), line));
  if (node.filter == nullptr) return items;
  std::vector<Value> passed;
  for (Value& item : *items) {
    Scope scope{{}, scope_};
    const Scoped<Scope*> inside(&scope_, &scope);
    MOE_RETURN_IF_ERROR(Assign(node.target, item, line));
    MOE_ASSIGN_OR_RETURN(const Value passes, Evaluate(*node.filter));
    if (passes.IsTrue()) passed.push_back(std::move(item));
  }
  return passed;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunLoop(const ForNode& node, const std::vector<Value>& items, int64_t depth,
                                                   int line) {
  Loop running{.node = &node, .around = scope_, .depth = depth};
  const Scoped<Loop*> in_loop(&loop_, &running);
  for (size_t i = 0; i < items.size(); ++i) {
    if (++iterations_ > kMaxLoopIterations) {
      return AtLine(absl::ResourceExhaustedError(Concat("more than ", kMaxLoopIterations, " loop iterations")), line);
    }
    // A new scope per iteration: variables of the body do not persist.
    Scope scope{{}, scope_};
    const Scoped<Scope*> inside(&scope_, &scope);
    running.index = i;
    MOE_RETURN_IF_ERROR(Assign(node.target, items[i], line));
    absl::StatusOr<Value> loop = LoopVariable(items, i, depth);
    MOE_RETURN_IF_ERROR(AtLine(loop.status(), line));
    scope.variables["loop"] = *std::move(loop);
    MOE_ASSIGN_OR_RETURN(const Flow flow, Execute(node.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

absl::StatusOr<Value> Evaluator::LoopVariable(const std::vector<Value>& items, size_t index, int64_t depth) {
  constexpr int64_t kCost = 1280;  // eleven members with their names
  MOE_RETURN_IF_ERROR(budget_.Charge(kCost));
  const auto i = static_cast<int64_t>(index);
  const auto count = static_cast<int64_t>(items.size());
  return Value::MakeDict({
      {"index", Value(i + 1)},
      {"index0", Value(i)},
      {"revindex", Value(count - i)},
      {"revindex0", Value(count - i - 1)},
      {"first", Value(i == 0)},
      {"last", Value(i + 1 == count)},
      {"length", Value(count)},
      {"depth", Value(depth + 1)},
      {"depth0", Value(depth)},
      {"previtem", i == 0 ? Value() : items[index - 1]},
      {"nextitem", i + 1 == count ? Value() : items[index + 1]},
  });
}

absl::Status Evaluator::Assign(const Target& target, const Value& value, int line) {
  if (!target.attribute.empty()) {
    MOE_ASSIGN_OR_RETURN(const Value object, Evaluate(NameNode{target.name}, line));
    Namespace* space = object.AsNamespace();
    if (space == nullptr) return TemplateError(line, Concat("'", target.name, "' is not a namespace"));
    (*space)[target.attribute] = value;
    return absl::OkStatus();
  }
  if (target.parts.empty()) {
    scope_->variables[target.name] = value;
    return absl::OkStatus();
  }
  const absl::StatusOr<std::vector<Value>> items = Items(value, budget_);
  if (absl::IsResourceExhausted(items.status())) return AtLine(items.status(), line);
  if (!items.ok() || items->size() != target.parts.size()) {
    return TemplateError(line, Concat("cannot unpack ", value.TypeName(), " into ", target.parts.size(), " variables"));
  }
  for (size_t i = 0; i < target.parts.size(); ++i) MOE_RETURN_IF_ERROR(Assign(target.parts[i], (*items)[i], line));
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const SetNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
  MOE_RETURN_IF_ERROR(Assign(node.target, value, line));
  return Flow::kNormal;
}

absl::StatusOr<std::string> Evaluator::Capture(const Body& body) {
  std::string captured;
  Scope scope{{}, scope_};
  const Scoped<std::string*> into(&sink_, &captured);
  const Scoped<Scope*> inside(&scope_, &scope);
  MOE_RETURN_IF_ERROR(Execute(body));
  return captured;
}

absl::StatusOr<Value> Evaluator::CaptureFiltered(const Body& body, const std::vector<FilterCall>& filters, int line) {
  MOE_ASSIGN_OR_RETURN(std::string text, Capture(body));
  Value value(std::move(text));
  for (const FilterCall& call : filters) {
    MOE_ASSIGN_OR_RETURN(value, ApplyFilter(call, value, line));
  }
  return value;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const SetBlockNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value value, CaptureFiltered(node.body, node.filters, line));
  MOE_RETURN_IF_ERROR(Assign(node.target, value, line));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const FilterBlockNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value value, CaptureFiltered(node.body, node.filters, line));
  const absl::StatusOr<std::string> text = ToText(value, &budget_);
  MOE_RETURN_IF_ERROR(AtLine(text.status(), line));
  MOE_RETURN_IF_ERROR(Emit(*text, line));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const WithNode& node, int) {
  Scope scope{{}, scope_};
  for (const auto& [name, expression] : node.variables) {
    MOE_ASSIGN_OR_RETURN(scope.variables[name], Evaluate(*expression));
  }
  const Scoped<Scope*> inside(&scope_, &scope);
  return Execute(node.body);
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const CallBlockNode& node, int line) {
  MOE_RETURN_IF_ERROR(AtLine(budget_.Charge(kEvaluationCost), line));
  callers_.push_back(std::make_unique<Caller>(Caller{&node.caller, scope_}));
  Caller* const caller = callers_.back().get();
  const absl::StatusOr<Value> value =
      Call(std::get<CallNode>(node.call->node), Value(static_cast<const Caller*>(caller)), line);
  caller->scope = nullptr;
  MOE_RETURN_IF_ERROR(value.status());
  const absl::StatusOr<std::string> text = ToText(*value, &budget_);
  MOE_RETURN_IF_ERROR(AtLine(text.status(), line));
  MOE_RETURN_IF_ERROR(Emit(*text, line));
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const OtherTemplateNode& node, int line) {
  return TemplateError(line, Concat("tag '", node.tag, "' needs another template, and a model has only this one"));
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const MacroNode& node, int) {
  scope_->variables[node.name] = Value(&node);
  return Flow::kNormal;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const BreakNode&, int) { return Flow::kBreak; }
absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const ContinueNode&, int) { return Flow::kContinue; }

}  // namespace moestro::text::jinja
