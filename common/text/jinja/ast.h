// A parsed template. Immutable, so that one template can be rendered by many threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

struct Expression;
using ExpressionPointer = std::unique_ptr<const Expression>;
struct Function;

struct Arguments {
  struct Positional {
    ExpressionPointer value;
    bool unpacked = false;  // *value
  };
  std::vector<Positional> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;  // without a name: **value
};

enum class UnaryOperator { kNegate, kPlus, kNot };
enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower, kConcatenate };
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct LiteralNode {
  Value value;
};
struct NameNode {
  std::string name;
};
struct ListNode {
  std::vector<ExpressionPointer> items;
  bool is_tuple = false;
};
struct DictNode {
  std::vector<std::pair<ExpressionPointer, ExpressionPointer>> items;
};
struct AttributeNode {  // object.name
  ExpressionPointer object;
  std::string name;
};
struct ItemNode {  // object[index]
  ExpressionPointer object;
  ExpressionPointer index;
};
struct SliceNode {  // object[start:stop:step]; null if omitted
  ExpressionPointer object;
  ExpressionPointer start;
  ExpressionPointer stop;
  ExpressionPointer step;
};
struct CallNode {  // callee(arguments); a callee that is an AttributeNode may be a method
  ExpressionPointer callee;
  Arguments arguments;
};
struct FilterCall {  // filter(arguments)
  std::string name;
  const Function* filter;  // null: an error, but only if it is reached
  Arguments arguments;
};
struct FilterNode {  // value | filter(arguments)
  ExpressionPointer value;
  FilterCall call;
};
struct TestNode {  // value is test(arguments)
  ExpressionPointer value;
  std::string name;
  const Function* test;  // null: an error, but only if it is reached
  Arguments arguments;
};
struct UnaryNode {
  UnaryOperator op;
  ExpressionPointer operand;
};
struct BinaryNode {
  BinaryOperator op;
  ExpressionPointer left;
  ExpressionPointer right;
};
struct CompareNode {  // a < b < c holds if both comparisons do; b is evaluated once
  ExpressionPointer first;
  std::vector<std::pair<Comparison, ExpressionPointer>> rest;
};
struct LogicalNode {  // the value of the deciding operand
  bool is_and;
  ExpressionPointer left;
  ExpressionPointer right;
};
struct ConditionalNode {  // then if condition else otherwise; a null otherwise is undefined
  ExpressionPointer condition;
  ExpressionPointer then;
  ExpressionPointer otherwise;
};

struct Expression {
  int line;
  int depth;  // 1 + the greatest depth of the operands
  std::variant<LiteralNode, NameNode, ListNode, DictNode, AttributeNode, ItemNode, SliceNode, CallNode, FilterNode,
               TestNode, UnaryNode, BinaryNode, CompareNode, LogicalNode, ConditionalNode>
      node;
};

struct Statement;
using Body = std::vector<Statement>;

struct TextNode {
  std::string text;
};
struct OutputNode {
  ExpressionPointer value;
};
struct IfNode {
  std::vector<std::pair<ExpressionPointer, Body>> branches;
  Body otherwise;
};
// A name, an attribute of a namespace, or parts that unpack a list.
struct Target {
  std::string name = {};
  std::string attribute = {};  // if not empty, `name` is the namespace
  std::vector<Target> parts = {};
};
struct ForNode {
  Target target;
  ExpressionPointer iterable;
  ExpressionPointer filter;  // null: all items
  Body body;
  Body otherwise;          // if no item passed the filter
  bool recursive = false;  // loop(items) runs it again
};
struct SetNode {
  Target target;
  ExpressionPointer value;
};
struct SetBlockNode {  // the rendered body after the filters
  Target target;
  std::vector<FilterCall> filters;
  Body body;
};
struct FilterBlockNode {  // writes the rendered body after the filters; a generation block has none
  std::vector<FilterCall> filters;
  Body body;
};
struct WithNode {
  std::vector<std::pair<std::string, ExpressionPointer>> variables;
  Body body;
};
struct MacroNode {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPointer>> parameters;  // null default: undefined
  Body body;
  bool takes_caller = false;  // the body names `caller`
};
struct CallBlockNode {     // writes the result of a macro, whose caller() renders the body
  ExpressionPointer call;  // a CallNode
  MacroNode caller;
};
// A tag that needs other templates: an error, but only if it is reached.
struct OtherTemplateNode {
  std::string tag;
};
struct BreakNode {};
struct ContinueNode {};

struct Statement {
  int line;
  std::variant<TextNode, OutputNode, IfNode, ForNode, SetNode, SetBlockNode, FilterBlockNode, WithNode, MacroNode,
               CallBlockNode, OtherTemplateNode, BreakNode, ContinueNode>
      node;
};

}  // namespace moestro::text::jinja
