// Renders a parsed template.
#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

using Variables = std::map<std::string, Value>;
using Clock = std::function<std::time_t()>;

// One rendering. Use once; not thread-safe. The template must outlive it.
class Evaluator {
 public:
  // `clock` gives the date of strftime_now().
  Evaluator(Variables variables, Clock clock);

  // INVALID_ARGUMENT with the line for an error in the template, or with the message of raise_exception().
  // RESOURCE_EXHAUSTED at one of the limits in limits.h.
  absl::StatusOr<std::string> Render(const Body& body);

 private:
  friend struct Caller;
  struct Scope {
    Variables variables;
    const Scope* parent;
  };
  struct CallArguments {
    std::vector<Value> positional;
    NamedValues named;
  };
  enum class Flow { kNormal, kBreak, kContinue };
  // A loop that runs.
  struct Loop {
    const ForNode* node;
    const Scope* around;
    int64_t depth;  // of a recursive one in itself
    size_t index = 0;
    Value last = {};  // what changed() was given
  };

  // Statements.
  absl::StatusOr<Flow> Execute(const Body& body);
  absl::StatusOr<Flow> Execute(const TextNode& node, int line);
  absl::StatusOr<Flow> Execute(const OutputNode& node, int line);
  absl::StatusOr<Flow> Execute(const IfNode& node, int line);
  absl::StatusOr<Flow> Execute(const ForNode& node, int line);
  absl::StatusOr<Flow> Execute(const SetNode& node, int line);
  absl::StatusOr<Flow> Execute(const SetBlockNode& node, int line);
  absl::StatusOr<Flow> Execute(const FilterBlockNode& node, int line);
  absl::StatusOr<Flow> Execute(const WithNode& node, int line);
  absl::StatusOr<Flow> Execute(const MacroNode& node, int line);
  absl::StatusOr<Flow> Execute(const CallBlockNode& node, int line);
  absl::StatusOr<Flow> Execute(const OtherTemplateNode& node, int line);
  absl::StatusOr<Flow> Execute(const BreakNode& node, int line);
  absl::StatusOr<Flow> Execute(const ContinueNode& node, int line);
  absl::StatusOr<Flow> ExecuteLoop(const ForNode& node, const Value& iterable, int64_t depth, int line);
  absl::StatusOr<std::vector<Value>> LoopItems(const ForNode& node, const Value& iterable, int line);
  absl::StatusOr<Flow> RunLoop(const ForNode& node, const std::vector<Value>& items, int64_t depth, int line);
  absl::StatusOr<Value> LoopVariable(const std::vector<Value>& items, size_t index, int64_t depth);
  absl::Status Assign(const Target& target, const Value& value, int line);
  absl::Status Emit(std::string_view text, int line);
  // Renders into a separate string, in a separate scope.
  absl::StatusOr<std::string> Capture(const Body& body);
  absl::StatusOr<Value> CaptureFiltered(const Body& body, const std::vector<FilterCall>& filters, int line);

  // Expressions.
  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::StatusOr<Value> EvaluateOptional(const ExpressionPointer& expression);
  absl::StatusOr<Value> Evaluate(const LiteralNode& node, int line);
  absl::StatusOr<Value> Evaluate(const NameNode& node, int line);
  absl::StatusOr<Value> Evaluate(const ListNode& node, int line);
  absl::StatusOr<Value> Evaluate(const DictNode& node, int line);
  absl::StatusOr<Value> Evaluate(const AttributeNode& node, int line);
  absl::StatusOr<Value> Evaluate(const ItemNode& node, int line);
  absl::StatusOr<Value> Evaluate(const SliceNode& node, int line);
  absl::StatusOr<Value> Evaluate(const CallNode& node, int line);
  absl::StatusOr<Value> Evaluate(const FilterNode& node, int line);
  absl::StatusOr<Value> Evaluate(const TestNode& node, int line);
  absl::StatusOr<Value> Evaluate(const UnaryNode& node, int line);
  absl::StatusOr<Value> Evaluate(const BinaryNode& node, int line);
  absl::StatusOr<Value> Evaluate(const CompareNode& node, int line);
  absl::StatusOr<Value> Evaluate(const LogicalNode& node, int line);
  absl::StatusOr<Value> Evaluate(const ConditionalNode& node, int line);

  // Calls.
  absl::StatusOr<CallArguments> EvaluateArguments(const Arguments& arguments);
  absl::StatusOr<Value> ApplyFilter(const FilterCall& call, const Value& value, int line);
  absl::StatusOr<Value> CallFunction(const Function& function, const Value& self, const Arguments& arguments, int line);
  // `caller` is undefined except for a call block.
  absl::StatusOr<Value> Call(const CallNode& node, const Value& caller, int line);
  absl::StatusOr<Value> CallValue(const Value& callee, const CallNode& node, const Value& caller, int line);
  absl::StatusOr<Value> CallMacro(const MacroNode& macro, const Scope& around, CallArguments arguments,
                                  const Value& caller, int line);
  bool IsLoop(const Expression& expression, const Value& value) const;
  absl::StatusOr<Value> CallLoop(const Arguments& arguments, int line);
  absl::StatusOr<Value> LoopChanged(const Arguments& arguments, int line);
  absl::StatusOr<Value> LoopCycle(const Arguments& arguments, int line);
  absl::StatusOr<Value> CallBuiltin(Builtin builtin, CallArguments arguments);
  absl::StatusOr<NamedValues> MappingArguments(CallArguments arguments, std::string_view function);
  absl::StatusOr<Value> StrftimeNow(const CallArguments& arguments);
  absl::StatusOr<Value> MakeRange(const CallArguments& arguments);

  Budget budget_;
  int depth_ = 0;
  int64_t iterations_ = 0;
  Scope globals_;
  Scope* scope_ = &globals_;
  Loop* loop_ = nullptr;  // the innermost one
  std::string output_;
  std::string* sink_ = &output_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<Caller>> callers_;
  const Clock clock_;
};

// caller() of a call block. A namespace may keep it for longer than the block, where it cannot be called.
struct Caller {
  const MacroNode* macro;
  const Evaluator::Scope* scope;  // of the block; null after it
};

}  // namespace moestro::text::jinja
