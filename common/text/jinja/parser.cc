#include "common/text/jinja/parser.h"

#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/expression_parser.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/scoped.h"
#include "common/text/jinja/token_cursor.h"

namespace moestro::text::jinja {
namespace {

using Kind = LexerToken::Kind;

class StatementParser {
 public:
  explicit StatementParser(std::vector<LexerToken> tokens) : tokens_(std::move(tokens)), expressions_(&tokens_) {}

  absl::StatusOr<Body> ParseTemplate() {
    MOE_ASSIGN_OR_RETURN(Body body, ParseBody());
    if (tokens_.Is(Kind::kEnd)) {
      MOE_RETURN_IF_ERROR(expressions_.unknown());
      return body;
    }
    return TemplateError(tokens_.line(), Concat("tag '", tokens_.PeekSecond().text, "' has no opening tag"));
  }

 private:
  // Parses up to a tag that ends or divides a block, which is not consumed, or to the end of the template.
  absl::StatusOr<Body> ParseBody() {
    if (++nesting_ > kMaxNesting) return TemplateError(tokens_.line(), Concat("tags are nested over ", kMaxNesting));
    Body body;
    while (!tokens_.Is(Kind::kEnd) && !IsEnd()) {
      MOE_ASSIGN_OR_RETURN(Statement statement, ParseStatement());
      body.push_back(std::move(statement));
    }
    --nesting_;
    return body;
  }

  bool IsEnd() const {
    if (!tokens_.Is(Kind::kBlockBegin)) return false;
    const std::string& name = tokens_.PeekSecond().text;
    return name.starts_with("end") || name == "elif" || name == "else";
  }

  absl::Status EndTag() { return tokens_.Expect(Kind::kBlockEnd, "'%}'"); }

  // "{% name %}"
  absl::Status ExpectTag(std::string_view name) {
    if (!tokens_.Is(Kind::kBlockBegin)) return tokens_.Unexpected(Concat("'{% ", name, " %}'"));
    tokens_.Next();
    if (!tokens_.SkipName(name)) return tokens_.Unexpected(Concat("'", name, "'"));
    return EndTag();
  }

  absl::StatusOr<Statement> ParseStatement() {
    const int line = tokens_.line();
    if (tokens_.Is(Kind::kData)) return Statement{line, TextNode{tokens_.Next().text}};
    if (tokens_.Skip(Kind::kVariableBegin)) {
      MOE_ASSIGN_OR_RETURN(ExpressionPointer value, expressions_.ParseTuple());
      MOE_RETURN_IF_ERROR(tokens_.Expect(Kind::kVariableEnd, "'}}'"));
      return Statement{line, OutputNode{std::move(value)}};
    }
    tokens_.Next();  // "{%"
    MOE_ASSIGN_OR_RETURN(const std::string tag, tokens_.ExpectName("the name of a tag"));
    if (tag == "if") return ParseIf(line);
    if (tag == "for") return ParseFor(line);
    if (tag == "set") return ParseSet(line);
    if (tag == "macro") return ParseMacro(line);
    if (tag == "call") return ParseCallBlock(line);
    if (tag == "filter" || tag == "generation") return ParseFilterBlock(line, tag);
    if (tag == "with") return ParseWith(line);
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") return SkipOtherTemplate(line, tag);
    if (tag == "break" || tag == "continue") return ParseJump(line, tag);
    return TemplateError(line, Concat("tag '", tag, "' is not supported"));
  }

  // Called after "if".
  absl::StatusOr<Statement> ParseIf(int line) {
    IfNode node;
    const Scoped<bool> branch = expressions_.Within(/*in_branch=*/true);
    while (true) {
      MOE_ASSIGN_OR_RETURN(ExpressionPointer condition, expressions_.Parse());
      MOE_RETURN_IF_ERROR(EndTag());
      MOE_ASSIGN_OR_RETURN(Body body, ParseBody());
      node.branches.emplace_back(std::move(condition), std::move(body));
      if (!IsTag("elif")) break;
      tokens_.Next();
      tokens_.Next();
    }
    MOE_ASSIGN_OR_RETURN(node.otherwise, ParseElse());
    MOE_RETURN_IF_ERROR(ExpectTag("endif"));
    return Statement{line, std::move(node)};
  }

  bool IsTag(std::string_view name) const { return tokens_.Is(Kind::kBlockBegin) && tokens_.PeekSecond().text == name; }

  absl::StatusOr<Body> ParseElse() {
    if (!IsTag("else")) return Body{};
    MOE_RETURN_IF_ERROR(ExpectTag("else"));
    return ParseBody();
  }

  // "a", "a, b" or "a, (b, c)"
  absl::StatusOr<Target> ParseTarget(int nesting = 0) {
    if (nesting > kMaxNesting) return TemplateError(tokens_.line(), "variables are nested too deep");
    std::vector<Target> parts;
    bool is_list = false;
    do {
      if (is_list && (tokens_.IsOperator(")") || tokens_.IsOperator("=") || tokens_.IsName("in"))) break;
      if (tokens_.SkipOperator("(")) {
        MOE_ASSIGN_OR_RETURN(Target inner, ParseTarget(nesting + 1));
        MOE_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
        parts.push_back(std::move(inner));
      } else {
        MOE_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName("the name of a variable"));
        parts.push_back({.name = std::move(name)});
      }
      is_list = is_list || tokens_.IsOperator(",");
    } while (tokens_.SkipOperator(","));
    if (!is_list) return std::move(parts[0]);
    return Target{.parts = std::move(parts)};
  }

  absl::StatusOr<Statement> ParseFor(int line) {
    ForNode node;
    MOE_ASSIGN_OR_RETURN(node.target, ParseTarget());
    if (!tokens_.SkipName("in")) return tokens_.Unexpected("'in'");
    MOE_ASSIGN_OR_RETURN(node.iterable, expressions_.ParseWithoutConditional());
    if (tokens_.SkipName("if")) {
      MOE_ASSIGN_OR_RETURN(node.filter, expressions_.Parse());
    }
    node.recursive = tokens_.SkipName("recursive");
    MOE_RETURN_IF_ERROR(EndTag());
    const Scoped<bool> inner = expressions_.Within(/*in_branch=*/false);
    ++loops_;
    MOE_ASSIGN_OR_RETURN(node.body, ParseBody());
    --loops_;
    MOE_ASSIGN_OR_RETURN(node.otherwise, ParseElse());
    MOE_RETURN_IF_ERROR(ExpectTag("endfor"));
    return Statement{line, std::move(node)};
  }

  absl::StatusOr<Statement> ParseSet(int line) {
    MOE_ASSIGN_OR_RETURN(Target target, ParseTarget());
    if (target.parts.empty() && tokens_.SkipOperator(".")) {
      MOE_ASSIGN_OR_RETURN(target.attribute, tokens_.ExpectName("the name of an attribute"));
    }
    if (tokens_.SkipOperator("=")) {
      MOE_ASSIGN_OR_RETURN(ExpressionPointer value, expressions_.ParseTuple());
      MOE_RETURN_IF_ERROR(EndTag());
      return Statement{line, SetNode{std::move(target), std::move(value)}};
    }
    SetBlockNode node;
    if (!target.parts.empty()) return tokens_.Unexpected("'='");
    if (tokens_.SkipOperator("|")) {
      MOE_ASSIGN_OR_RETURN(node.filters, expressions_.ParseFilterCalls());
    }
    node.target = std::move(target);
    MOE_RETURN_IF_ERROR(EndTag());
    const Scoped<bool> inner = expressions_.Within(/*in_branch=*/false);
    MOE_ASSIGN_OR_RETURN(node.body, ParseBody());
    MOE_RETURN_IF_ERROR(ExpectTag("endset"));
    return Statement{line, std::move(node)};
  }

  // A body that is rendered by itself: a loop around it cannot be left from inside.
  absl::StatusOr<Body> ParseSeparateBody() {
    const Scoped<int> outside_of_loops(&loops_, 0);
    const Scoped<bool> inner = expressions_.Within(/*in_branch=*/false);
    return ParseBody();
  }

  // transformers marks what the assistant wrote with a generation block, which renders as its body.
  absl::StatusOr<Statement> ParseFilterBlock(int line, std::string_view tag) {
    FilterBlockNode node;
    if (tag == "filter") {
      MOE_ASSIGN_OR_RETURN(node.filters, expressions_.ParseFilterCalls());
    }
    MOE_RETURN_IF_ERROR(EndTag());
    MOE_ASSIGN_OR_RETURN(node.body, ParseSeparateBody());
    MOE_RETURN_IF_ERROR(ExpectTag(Concat("end", tag)));
    return Statement{line, std::move(node)};
  }

  absl::StatusOr<Statement> ParseWith(int line) {
    WithNode node;
    while (!tokens_.Is(Kind::kBlockEnd)) {
      if (!node.variables.empty()) MOE_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      MOE_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName("the name of a variable"));
      MOE_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      MOE_ASSIGN_OR_RETURN(ExpressionPointer value, expressions_.Parse());
      node.variables.emplace_back(std::move(name), std::move(value));
    }
    MOE_RETURN_IF_ERROR(EndTag());
    const Scoped<bool> inner = expressions_.Within(/*in_branch=*/false);
    MOE_ASSIGN_OR_RETURN(node.body, ParseBody());
    MOE_RETURN_IF_ERROR(ExpectTag("endwith"));
    return Statement{line, std::move(node)};
  }

  // Jinja2 also fails only where it runs one.
  absl::StatusOr<Statement> SkipOtherTemplate(int line, const std::string& tag) {
    while (!tokens_.Is(Kind::kBlockEnd) && !tokens_.Is(Kind::kEnd)) tokens_.Next();
    MOE_RETURN_IF_ERROR(EndTag());
    return Statement{line, OtherTemplateNode{tag}};
  }

  // Called after "(".
  absl::Status ParseParameters(MacroNode* macro) {
    while (!tokens_.IsOperator(")")) {
      MOE_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName("the name of a parameter"));
      ExpressionPointer fallback;
      if (tokens_.SkipOperator("=")) {
        MOE_ASSIGN_OR_RETURN(fallback, expressions_.Parse());
      }
      macro->parameters.emplace_back(std::move(name), std::move(fallback));
      if (!tokens_.SkipOperator(",")) break;
    }
    return tokens_.ExpectOperator(")");
  }

  // "{% call(a, b) macro(...) %}"
  absl::StatusOr<Statement> ParseCallBlock(int line) {
    CallBlockNode node;
    node.caller.name = "caller";
    if (tokens_.SkipOperator("(")) MOE_RETURN_IF_ERROR(ParseParameters(&node.caller));
    MOE_ASSIGN_OR_RETURN(node.call, expressions_.Parse());
    if (!std::holds_alternative<CallNode>(node.call->node)) {
      return TemplateError(line, "a call block needs the call of a macro");
    }
    MOE_RETURN_IF_ERROR(EndTag());
    const size_t begin = tokens_.position();
    MOE_ASSIGN_OR_RETURN(node.caller.body, ParseSeparateBody());
    // The body has a caller of its own, which is undefined.
    node.caller.takes_caller = tokens_.HasNameSince(begin, "caller");
    MOE_RETURN_IF_ERROR(ExpectTag("endcall"));
    return Statement{line, std::move(node)};
  }

  // A macro sees the template's variables, not those of an enclosing loop or macro, so it must not be inside one.
  absl::StatusOr<Statement> ParseMacro(int line) {
    if (loops_ > 0 || in_macro_) return TemplateError(line, "a macro inside a loop or macro is not supported");
    MacroNode macro;
    MOE_ASSIGN_OR_RETURN(macro.name, tokens_.ExpectName("the name of a macro"));
    MOE_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    MOE_RETURN_IF_ERROR(ParseParameters(&macro));
    MOE_RETURN_IF_ERROR(EndTag());
    const size_t begin = tokens_.position();
    const Scoped<bool> inner = expressions_.Within(/*in_branch=*/false);
    in_macro_ = true;
    MOE_ASSIGN_OR_RETURN(macro.body, ParseBody());
    in_macro_ = false;
    macro.takes_caller = tokens_.HasNameSince(begin, "caller");
    MOE_RETURN_IF_ERROR(ExpectTag("endmacro"));
    return Statement{line, std::move(macro)};
  }

  absl::StatusOr<Statement> ParseJump(int line, std::string_view tag) {
    if (loops_ == 0) return TemplateError(line, Concat("'", tag, "' outside of a loop"));
    MOE_RETURN_IF_ERROR(EndTag());
    if (tag == "break") return Statement{line, BreakNode{}};
    return Statement{line, ContinueNode{}};
  }

  TokenCursor tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;  // enclosing the current statement
  bool in_macro_ = false;
};

}  // namespace

absl::StatusOr<Body> Parse(std::string_view source) {
  MOE_ASSIGN_OR_RETURN(std::vector<LexerToken> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).ParseTemplate();
}

}  // namespace moestro::text::jinja
