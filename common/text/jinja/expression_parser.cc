#include "common/text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/limits.h"

namespace moestro::text::jinja {
namespace {

using Kind = LexerToken::Kind;

// The maximum depth of the operands, for each kind of node.
int Depth(const ExpressionPointer& expression) { return expression == nullptr ? 0 : expression->depth; }
int Depth(const Arguments& arguments) {
  int depth = 0;
  for (const auto& argument : arguments.positional) depth = std::max(depth, Depth(argument.value));
  for (const auto& [name, argument] : arguments.named) depth = std::max(depth, Depth(argument));
  return depth;
}
int Depth(const LiteralNode&) { return 0; }
int Depth(const NameNode&) { return 0; }
int Depth(const ListNode& node) {
  int depth = 0;
  for (const auto& item : node.items) depth = std::max(depth, Depth(item));
  return depth;
}
int Depth(const DictNode& node) {
  int depth = 0;
  for (const auto& [key, value] : node.items) depth = std::max({depth, Depth(key), Depth(value)});
  return depth;
}
int Depth(const AttributeNode& node) { return Depth(node.object); }
int Depth(const ItemNode& node) { return std::max(Depth(node.object), Depth(node.index)); }
int Depth(const SliceNode& node) {
  return std::max({Depth(node.object), Depth(node.start), Depth(node.stop), Depth(node.step)});
}
int Depth(const CallNode& node) { return std::max(Depth(node.callee), Depth(node.arguments)); }
int Depth(const FilterNode& node) { return std::max(Depth(node.value), Depth(node.call.arguments)); }
int Depth(const TestNode& node) { return std::max(Depth(node.value), Depth(node.arguments)); }
int Depth(const UnaryNode& node) { return Depth(node.operand); }
int Depth(const BinaryNode& node) { return std::max(Depth(node.left), Depth(node.right)); }
int Depth(const CompareNode& node) {
  int depth = Depth(node.first);
  for (const auto& [comparison, operand] : node.rest) depth = std::max(depth, Depth(operand));
  return depth;
}
int Depth(const LogicalNode& node) { return std::max(Depth(node.left), Depth(node.right)); }
int Depth(const ConditionalNode& node) {
  return std::max({Depth(node.condition), Depth(node.then), Depth(node.otherwise)});
}

absl::Status NestedTooDeep(int line) {
  return TemplateError(line, Concat("expressions are nested over ", kMaxNesting));
}

// Counts one level of recursion during its lifetime.
class Level {
 public:
  explicit Level(int* nesting) : nesting_(*nesting) { ++nesting_; }
  ~Level() { --nesting_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& nesting_;
};

struct OperatorEntry {
  std::string_view text;
  BinaryOperator op;
  int level;
};
// In ascending order of precedence.
constexpr OperatorEntry kBinaryOperators[] = {
    {"+", BinaryOperator::kAdd, 0},      {"-", BinaryOperator::kSubtract, 0}, {"~", BinaryOperator::kConcatenate, 1},
    {"*", BinaryOperator::kMultiply, 2}, {"/", BinaryOperator::kDivide, 2},   {"//", BinaryOperator::kFloorDivide, 2},
    {"%", BinaryOperator::kModulo, 2},   {"**", BinaryOperator::kPower, 3},
};
constexpr int kTightestLevel = 3;

// One level of parentheses is three levels of this parser.
constexpr int kMaxRecursion = 3 * kMaxNesting;

std::optional<Comparison> TakeComparison(TokenCursor& tokens) {
  constexpr std::pair<std::string_view, Comparison> kComparisons[] = {
      {"==", Comparison::kEqual},     {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual}, {">", Comparison::kGreater},   {">=", Comparison::kGreaterEqual},
  };
  for (const auto& [text, comparison] : kComparisons) {
    if (tokens.SkipOperator(text)) return comparison;
  }
  if (tokens.SkipName("in")) return Comparison::kIn;
  const LexerToken& second = tokens.PeekSecond();
  if (tokens.IsName("not") && second.kind == Kind::kName && second.text == "in") {
    tokens.Next();
    tokens.Next();
    return Comparison::kNotIn;
  }
  return std::nullopt;
}

}  // namespace

template <typename Node>
ExpressionParser::Result ExpressionParser::Make(int line, Node node) {
  const int depth = 1 + Depth(node);
  if (depth > kMaxNesting) return NestedTooDeep(line);
  return std::make_unique<const Expression>(Expression{line, depth, std::move(node)});
}

void ExpressionParser::RecordUnknown(std::string_view kind, const std::string& name, int line) {
  if (in_branch_ || !unknown_.ok()) return;
  unknown_ = TemplateError(line, Concat(kind, " '", name, "' is not supported"));
}

ExpressionParser::Result ExpressionParser::Parse() {
  const Level level(&nesting_);
  if (nesting_ > kMaxRecursion) return NestedTooDeep(tokens_.line());
  const absl::Status unknown_before = unknown_;
  MOE_ASSIGN_OR_RETURN(ExpressionPointer value, ParseOr());
  while (tokens_.IsName("if")) {
    unknown_ = unknown_before;  // what was parsed is a branch
    const Scoped<bool> branch = Within(/*in_branch=*/true);
    const int line = tokens_.line();
    tokens_.Next();
    MOE_ASSIGN_OR_RETURN(ExpressionPointer condition, ParseOr());
    ExpressionPointer otherwise;
    if (tokens_.SkipName("else")) {
      MOE_ASSIGN_OR_RETURN(otherwise, Parse());
    }
    MOE_ASSIGN_OR_RETURN(value,
                         Make(line, ConditionalNode{std::move(condition), std::move(value), std::move(otherwise)}));
  }
  return value;
}

ExpressionParser::Result ExpressionParser::ParseWithoutConditional() { return ParseOr(); }

ExpressionParser::Result ExpressionParser::ParseTuple() {
  const int line = tokens_.line();
  MOE_ASSIGN_OR_RETURN(ExpressionPointer first, Parse());
  if (!tokens_.IsOperator(",")) return first;
  ListNode list{.items = {}, .is_tuple = true};
  list.items.push_back(std::move(first));
  while (tokens_.SkipOperator(",")) {
    if (tokens_.IsOperator(")") || tokens_.Is(Kind::kVariableEnd) || tokens_.Is(Kind::kBlockEnd)) break;
    MOE_ASSIGN_OR_RETURN(ExpressionPointer item, Parse());
    list.items.push_back(std::move(item));
  }
  return Make(line, std::move(list));
}

ExpressionParser::Result ExpressionParser::ParseOr() {
  MOE_ASSIGN_OR_RETURN(ExpressionPointer left, ParseAnd());
  while (tokens_.IsName("or")) {
    const int line = tokens_.Next().line;
    MOE_ASSIGN_OR_RETURN(ExpressionPointer right, ParseAnd());
    MOE_ASSIGN_OR_RETURN(left, Make(line, LogicalNode{/*is_and=*/false, std::move(left), std::move(right)}));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseAnd() {
  MOE_ASSIGN_OR_RETURN(ExpressionPointer left, ParseNot());
  while (tokens_.IsName("and")) {
    const int line = tokens_.Next().line;
    MOE_ASSIGN_OR_RETURN(ExpressionPointer right, ParseNot());
    MOE_ASSIGN_OR_RETURN(left, Make(line, LogicalNode{/*is_and=*/true, std::move(left), std::move(right)}));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseNot() {
  const Level level(&nesting_);
  if (nesting_ > kMaxRecursion) return NestedTooDeep(tokens_.line());
  if (!tokens_.IsName("not")) return ParseCompare();
  const int line = tokens_.Next().line;
  MOE_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseNot());
  return Make(line, UnaryNode{UnaryOperator::kNot, std::move(operand)});
}

ExpressionParser::Result ExpressionParser::ParseCompare() {
  const int line = tokens_.line();
  MOE_ASSIGN_OR_RETURN(ExpressionPointer first, ParseBinary(0));
  CompareNode compare;
  while (const std::optional<Comparison> comparison = TakeComparison(tokens_)) {
    MOE_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseBinary(0));
    compare.rest.emplace_back(*comparison, std::move(operand));
  }
  if (compare.rest.empty()) return first;
  compare.first = std::move(first);
  return Make(line, std::move(compare));
}

ExpressionParser::Result ExpressionParser::ParseBinary(int level) {
  if (level > kTightestLevel) return ParseUnary(/*with_filter=*/true);
  MOE_ASSIGN_OR_RETURN(ExpressionPointer left, ParseBinary(level + 1));
  while (true) {
    const auto* entry = std::find_if(std::begin(kBinaryOperators), std::end(kBinaryOperators),
                                     [&](const auto& e) { return e.level == level && tokens_.IsOperator(e.text); });
    if (entry == std::end(kBinaryOperators)) return left;
    const int line = tokens_.Next().line;
    MOE_ASSIGN_OR_RETURN(ExpressionPointer right, ParseBinary(level + 1));
    MOE_ASSIGN_OR_RETURN(left, Make(line, BinaryNode{entry->op, std::move(left), std::move(right)}));
  }
}

ExpressionParser::Result ExpressionParser::ParseUnary(bool with_filter) {
  const Level level(&nesting_);
  if (nesting_ > kMaxRecursion) return NestedTooDeep(tokens_.line());
  ExpressionPointer value;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const LexerToken& sign = tokens_.Next();
    const UnaryOperator op = sign.text == "-" ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    MOE_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseUnary(/*with_filter=*/false));
    MOE_ASSIGN_OR_RETURN(value, Make(sign.line, UnaryNode{op, std::move(operand)}));
  } else {
    MOE_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  MOE_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (!with_filter) return value;
  return ParseFiltersAndTests(std::move(value));
}

ExpressionParser::Result ExpressionParser::ParsePrimary() {
  switch (tokens_.Peek().kind) {
    case Kind::kName:
      return ParseName();
    case Kind::kInteger:
    case Kind::kFloat:
      return ParseNumber();
    case Kind::kString:
      return ParseString();
    case Kind::kOperator:
      if (tokens_.IsOperator("(")) return ParseParenthesized();
      if (tokens_.IsOperator("[")) return ParseList();
      if (tokens_.IsOperator("{")) return ParseDict();
      break;
    default:
      break;
  }
  return tokens_.Unexpected("an expression");
}

ExpressionParser::Result ExpressionParser::ParseName() {
  const LexerToken& token = tokens_.Next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Make(token.line, LiteralNode{Value(true)});
  if (name == "false" || name == "False") return Make(token.line, LiteralNode{Value(false)});
  if (name == "none" || name == "None") return Make(token.line, LiteralNode{Value(Value::None{})});
  return Make(token.line, NameNode{name});
}

ExpressionParser::Result ExpressionParser::ParseNumber() {
  const LexerToken& token = tokens_.Next();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  int64_t integer = 0;
  double real = 0;
  const bool is_integer = token.kind == Kind::kInteger;
  const std::from_chars_result result =
      is_integer ? std::from_chars(begin, end, integer) : std::from_chars(begin, end, real);
  if (result.ec != std::errc() || result.ptr != end) {
    return TemplateError(token.line, Concat("number ", token.text, " is out of range"));
  }
  return Make(token.line, LiteralNode{is_integer ? Value(integer) : Value(real)});
}

ExpressionParser::Result ExpressionParser::ParseString() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.Is(Kind::kString)) text += tokens_.Next().text;  // adjacent literals are concatenated
  return Make(line, LiteralNode{Value(std::move(text))});
}

ExpressionParser::Result ExpressionParser::ParseParenthesized() {
  const int line = tokens_.Next().line;
  if (tokens_.SkipOperator(")")) return Make(line, ListNode{.items = {}, .is_tuple = true});
  MOE_ASSIGN_OR_RETURN(ExpressionPointer value, ParseTuple());
  MOE_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return value;
}

ExpressionParser::Result ExpressionParser::ParseList() {
  const int line = tokens_.Next().line;
  ListNode list;
  while (!tokens_.IsOperator("]")) {
    MOE_ASSIGN_OR_RETURN(ExpressionPointer item, Parse());
    list.items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
  }
  MOE_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return Make(line, std::move(list));
}

ExpressionParser::Result ExpressionParser::ParseDict() {
  const int line = tokens_.Next().line;
  DictNode dict;
  while (!tokens_.IsOperator("}")) {
    MOE_ASSIGN_OR_RETURN(ExpressionPointer key, Parse());
    MOE_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    MOE_ASSIGN_OR_RETURN(ExpressionPointer value, Parse());
    dict.items.emplace_back(std::move(key), std::move(value));
    if (!tokens_.SkipOperator(",")) break;
  }
  MOE_RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return Make(line, std::move(dict));
}

ExpressionParser::Result ExpressionParser::ParsePostfix(ExpressionPointer value) {
  while (true) {
    const int line = tokens_.line();
    if (tokens_.SkipOperator(".")) {
      if (tokens_.Is(Kind::kFloat)) {  // two positions: a.0.1
        const std::string text = tokens_.Next().text;
        for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
          end = std::min(text.find('.', begin), text.size());
          int64_t position = 0;
          const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, position);
          if (error != std::errc() || rest != text.data() + end) return TemplateError(line, "expected a position");
          MOE_ASSIGN_OR_RETURN(ExpressionPointer index, Make(line, LiteralNode{Value(position)}));
          MOE_ASSIGN_OR_RETURN(value, Make(line, ItemNode{std::move(value), std::move(index)}));
        }
      } else if (tokens_.Is(Kind::kInteger)) {
        MOE_ASSIGN_OR_RETURN(ExpressionPointer index, ParseNumber());
        MOE_ASSIGN_OR_RETURN(value, Make(line, ItemNode{std::move(value), std::move(index)}));
      } else {
        MOE_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName("the name of an attribute"));
        MOE_ASSIGN_OR_RETURN(value, Make(line, AttributeNode{std::move(value), std::move(name)}));
      }
    } else if (tokens_.SkipOperator("[")) {
      MOE_ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
    } else if (tokens_.IsOperator("(")) {
      MOE_ASSIGN_OR_RETURN(Arguments arguments, ParseArguments());
      MOE_ASSIGN_OR_RETURN(value, Make(line, CallNode{std::move(value), std::move(arguments)}));
    } else {
      return value;
    }
  }
}

// Called after "[": parses an index, or a slice with up to three parts.
ExpressionParser::Result ExpressionParser::ParseSubscript(ExpressionPointer object) {
  const int line = tokens_.line();
  ExpressionPointer parts[3];
  int part = 0;
  while (!tokens_.IsOperator("]")) {
    if (tokens_.SkipOperator(":")) {
      if (++part == 3) return tokens_.Unexpected("']'");
    } else if (parts[part] == nullptr) {
      MOE_ASSIGN_OR_RETURN(parts[part], Parse());
    } else {
      return tokens_.Unexpected("']'");
    }
  }
  if (part == 0 && parts[0] == nullptr) return tokens_.Unexpected("an index");
  tokens_.Next();
  if (part == 0) return Make(line, ItemNode{std::move(object), std::move(parts[0])});
  return Make(line, SliceNode{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])});
}

ExpressionParser::Result ExpressionParser::ParseFiltersAndTests(ExpressionPointer value) {
  while (true) {
    const int line = tokens_.line();
    if (tokens_.SkipOperator("|")) {
      MOE_ASSIGN_OR_RETURN(FilterCall call, ParseFilterCall());
      MOE_ASSIGN_OR_RETURN(value, Make(line, FilterNode{std::move(value), std::move(call)}));
    } else if (tokens_.SkipName("is")) {
      MOE_ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
    } else if (tokens_.IsOperator("(")) {
      MOE_ASSIGN_OR_RETURN(Arguments arguments, ParseArguments());
      MOE_ASSIGN_OR_RETURN(value, Make(line, CallNode{std::move(value), std::move(arguments)}));
    } else {
      return value;
    }
  }
}

absl::StatusOr<std::vector<FilterCall>> ExpressionParser::ParseFilterCalls() {
  std::vector<FilterCall> calls;
  do {
    MOE_ASSIGN_OR_RETURN(FilterCall call, ParseFilterCall());
    calls.push_back(std::move(call));
  } while (tokens_.SkipOperator("|"));
  return calls;
}

absl::StatusOr<FilterCall> ExpressionParser::ParseFilterCall() {
  const int line = tokens_.line();
  MOE_ASSIGN_OR_RETURN(const std::string name, tokens_.ExpectName("the name of a filter"));
  const Function* filter = FindFilter(name);
  if (filter == nullptr && !IsOtherFilter(name)) RecordUnknown("filter", name, line);
  Arguments arguments;
  if (tokens_.IsOperator("(")) {
    MOE_ASSIGN_OR_RETURN(arguments, ParseArguments());
  }
  return FilterCall{name, filter, std::move(arguments)};
}

// "is divisibleby 3": a test's argument needs no parentheses.
bool ExpressionParser::StartsTestArgument() const {
  switch (tokens_.Peek().kind) {
    case Kind::kName:
      return !tokens_.IsName("else") && !tokens_.IsName("or") && !tokens_.IsName("and") && !tokens_.IsName("is") &&
             !tokens_.IsName("if") && !tokens_.IsName("not") && !tokens_.IsName("in");
    case Kind::kString:
    case Kind::kInteger:
    case Kind::kFloat:
      return true;
    default:
      return tokens_.IsOperator("[") || tokens_.IsOperator("{");
  }
}

ExpressionParser::Result ExpressionParser::ParseTest(ExpressionPointer value) {
  const int line = tokens_.line();
  const bool negated = tokens_.SkipName("not");
  MOE_ASSIGN_OR_RETURN(const std::string name, tokens_.ExpectName("the name of a test"));
  const Function* test = FindTest(name);
  if (test == nullptr) RecordUnknown("test", name, line);
  Arguments arguments;
  if (tokens_.IsOperator("(")) {
    MOE_ASSIGN_OR_RETURN(arguments, ParseArguments());
  } else if (StartsTestArgument()) {
    MOE_ASSIGN_OR_RETURN(ExpressionPointer argument, ParsePrimary());
    MOE_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    arguments.positional.push_back({std::move(argument)});
  }
  MOE_ASSIGN_OR_RETURN(ExpressionPointer result,
                       Make(line, TestNode{std::move(value), name, test, std::move(arguments)}));
  if (!negated) return result;
  return Make(line, UnaryNode{UnaryOperator::kNot, std::move(result)});
}

absl::StatusOr<Arguments> ExpressionParser::ParseArguments() {
  MOE_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  Arguments arguments;
  while (!tokens_.IsOperator(")")) {
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      const bool by_name = tokens_.Next().text == "**";
      MOE_ASSIGN_OR_RETURN(ExpressionPointer value, Parse());
      if (by_name) {
        arguments.named.emplace_back("", std::move(value));
      } else {
        arguments.positional.push_back({std::move(value), /*unpacked=*/true});
      }
      if (!tokens_.SkipOperator(",")) break;
      continue;
    }
    const LexerToken& second = tokens_.PeekSecond();
    if (tokens_.Is(Kind::kName) && second.kind == Kind::kOperator && second.text == "=") {
      const std::string name = tokens_.Next().text;
      tokens_.Next();
      MOE_ASSIGN_OR_RETURN(ExpressionPointer value, Parse());
      arguments.named.emplace_back(name, std::move(value));
    } else {
      if (!arguments.named.empty()) return TemplateError(tokens_.line(), "positional argument after a named one");
      MOE_ASSIGN_OR_RETURN(ExpressionPointer value, Parse());
      arguments.positional.push_back({std::move(value)});
    }
    if (!tokens_.SkipOperator(",")) break;
  }
  MOE_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return arguments;
}

}  // namespace moestro::text::jinja
