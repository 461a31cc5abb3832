#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/access.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/lexer.h"
#include "common/text/jinja/line_error.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/scoped.h"

namespace moestro::text::jinja {
namespace {

// The source text of the expression for messages, if it consists of names.
std::string Describe(const Expression& expression) {
  if (const auto* name = std::get_if<NameNode>(&expression.node)) return name->name;
  if (const auto* attribute = std::get_if<AttributeNode>(&expression.node)) {
    return Concat(Describe(*attribute->object), ".", attribute->name);
  }
  return "the expression";
}

// Members of undefined values are the most frequent mistake, so the message names the value.
absl::Status CheckDefined(const Value& object, const Expression& expression, int line) {
  if (!object.IsUndefined()) return absl::OkStatus();
  return TemplateError(line, Concat("'", Describe(expression), "' is undefined"));
}

}  // namespace

absl::StatusOr<Value> Evaluator::Evaluate(const Expression& expression) {
  const Scoped<int> level(&depth_, depth_ + 1);
  if (depth_ > kMaxEvaluationDepth) return TooDeep(expression.line);
  MOE_RETURN_IF_ERROR(AtLine(budget_.Charge(kEvaluationCost), expression.line));
  return std::visit([&](const auto& node) { return Evaluate(node, expression.line); }, expression.node);
}

absl::StatusOr<Value> Evaluator::EvaluateOptional(const ExpressionPointer& expression) {
  if (expression == nullptr) return Value();
  return Evaluate(*expression);
}

absl::StatusOr<Value> Evaluator::Evaluate(const LiteralNode& node, int) { return node.value; }

absl::StatusOr<Value> Evaluator::Evaluate(const NameNode& node, int) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto found = scope->variables.find(node.name);
    if (found != scope->variables.end()) return found->second;
  }
  return Value();
}

absl::StatusOr<Value> Evaluator::Evaluate(const ListNode& node, int line) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPointer& item : node.items) {
    MOE_ASSIGN_OR_RETURN(Value value, Evaluate(*item));
    items.push_back(std::move(value));
  }
  return AtLine(node.is_tuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items)), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const DictNode& node, int line) {
  std::vector<std::pair<std::string, Value>> items;
  for (const auto& [key_expression, value_expression] : node.items) {
    MOE_ASSIGN_OR_RETURN(const Value key, Evaluate(*key_expression));
    absl::StatusOr<std::string> kept = DictKey(key);
    MOE_RETURN_IF_ERROR(AtLine(kept.status(), line));
    MOE_RETURN_IF_ERROR(AtLine(budget_.Charge(static_cast<int64_t>(kept->size())), line));
    MOE_ASSIGN_OR_RETURN(Value value, Evaluate(*value_expression));
    items.emplace_back(*std::move(kept), std::move(value));
  }
  return AtLine(Value::MakeDict(std::move(items)), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const AttributeNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  MOE_RETURN_IF_ERROR(CheckDefined(object, *node.object, line));
  return AtLine(GetAttribute(object, node.name, budget_), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const ItemNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  MOE_RETURN_IF_ERROR(CheckDefined(object, *node.object, line));
  MOE_ASSIGN_OR_RETURN(const Value index, Evaluate(*node.index));
  return AtLine(GetItem(object, index, budget_), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const SliceNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  MOE_RETURN_IF_ERROR(CheckDefined(object, *node.object, line));
  MOE_ASSIGN_OR_RETURN(const Value start, EvaluateOptional(node.start));
  MOE_ASSIGN_OR_RETURN(const Value stop, EvaluateOptional(node.stop));
  MOE_ASSIGN_OR_RETURN(const Value step, EvaluateOptional(node.step));
  return AtLine(GetSlice(object, start, stop, step, budget_), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const CallNode& node, int line) { return Call(node, Value(), line); }

absl::StatusOr<Value> Evaluator::Call(const CallNode& node, const Value& caller, int line) {
  const auto* attribute = std::get_if<AttributeNode>(&node.callee->node);
  if (attribute == nullptr) {
    MOE_ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.callee));
    if (IsLoop(*node.callee, callee)) return CallLoop(node.arguments, line);
    return CallValue(callee, node, caller, line);
  }
  MOE_ASSIGN_OR_RETURN(const Value object, Evaluate(*attribute->object));
  MOE_RETURN_IF_ERROR(CheckDefined(object, *attribute->object, line));
  if (IsLoop(*attribute->object, object) && (attribute->name == "changed" || attribute->name == "cycle")) {
    return attribute->name == "changed" ? LoopChanged(node.arguments, line) : LoopCycle(node.arguments, line);
  }
  if (const Function* method = FindMethod(object, attribute->name); method != nullptr && caller.IsUndefined()) {
    return CallFunction(*method, object, node.arguments, line);
  }
  absl::StatusOr<Value> callee = GetAttribute(object, attribute->name, budget_);
  MOE_RETURN_IF_ERROR(AtLine(callee.status(), line));
  if (!callee->IsUndefined()) return CallValue(*callee, node, caller, line);
  return TemplateError(line, Concat(object.TypeName(), " has no method '", attribute->name, "'"));
}

absl::StatusOr<Value> Evaluator::CallValue(const Value& callee, const CallNode& node, const Value& caller, int line) {
  const MacroNode* macro = callee.AsMacro();
  const Caller* block = callee.AsCaller();
  const Builtin* builtin = callee.AsBuiltin();
  if (macro == nullptr && block == nullptr && builtin == nullptr) {
    return TemplateError(line, Concat("'", Describe(*node.callee), "' is ", callee.TypeName(), ", not a function"));
  }
  if (!caller.IsUndefined() && (macro == nullptr || !macro->takes_caller)) {
    return TemplateError(line, Concat("'", Describe(*node.callee), "' has no use for the body of a call block"));
  }
  if (block != nullptr && block->scope == nullptr) return TemplateError(line, "the call block of a caller has ended");
  MOE_ASSIGN_OR_RETURN(CallArguments arguments, EvaluateArguments(node.arguments));
  if (macro != nullptr) return CallMacro(*macro, globals_, std::move(arguments), caller, line);
  if (block != nullptr) return CallMacro(*block->macro, *block->scope, std::move(arguments), Value(), line);
  return AtLine(CallBuiltin(*builtin, std::move(arguments)), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const FilterNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
  return ApplyFilter(node.call, value, line);
}

absl::StatusOr<Value> Evaluator::ApplyFilter(const FilterCall& call, const Value& value, int line) {
  if (call.filter == nullptr) return TemplateError(line, Concat("filter '", call.name, "' is not supported"));
  return CallFunction(*call.filter, value, call.arguments, line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const TestNode& node, int line) {
  if (node.test == nullptr) return TemplateError(line, Concat("test '", node.name, "' is not supported"));
  MOE_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
  return CallFunction(*node.test, value, node.arguments, line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const UnaryNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.operand));
  return AtLine(ApplyUnary(node.op, operand), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const BinaryNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.left));
  MOE_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.right));
  return AtLine(ApplyBinary(node.op, left, right, budget_), line);
}

absl::StatusOr<Value> Evaluator::Evaluate(const CompareNode& node, int line) {
  MOE_ASSIGN_OR_RETURN(Value left, Evaluate(*node.first));
  for (const auto& [comparison, operand] : node.rest) {
    MOE_ASSIGN_OR_RETURN(Value right, Evaluate(*operand));
    const absl::StatusOr<bool> holds = Compare(comparison, left, right, budget_);
    MOE_RETURN_IF_ERROR(AtLine(holds.status(), line));
    if (!*holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Evaluator::Evaluate(const LogicalNode& node, int) {
  MOE_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.left));
  if (left.IsTrue() != node.is_and) return left;
  return Evaluate(*node.right);
}

absl::StatusOr<Value> Evaluator::Evaluate(const ConditionalNode& node, int) {
  MOE_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.condition));
  return condition.IsTrue() ? Evaluate(*node.then) : EvaluateOptional(node.otherwise);
}

}  // namespace moestro::text::jinja
