// Parses expressions with Jinja's precedence.
#pragma once

#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/scoped.h"
#include "common/text/jinja/token_cursor.h"

namespace moestro::text::jinja {

// All functions: INVALID_ARGUMENT with the line for a syntax error, an unknown filter or test, and nesting over
// kMaxNesting. As in Jinja2, an unknown filter or test in a branch is an error only where it is reached;
// any other is one once the whole template is parsed.
class ExpressionParser {
 public:
  // The stream must outlive this.
  explicit ExpressionParser(TokenCursor* tokens) : tokens_(*tokens) {}

  absl::StatusOr<ExpressionPointer> Parse();
  // Excludes "a if b else c", so that a following "if" remains: for the iterable of a for loop.
  absl::StatusOr<ExpressionPointer> ParseWithoutConditional();
  // "a, b" is a list; a single expression without a comma is not.
  absl::StatusOr<ExpressionPointer> ParseTuple();
  // "name(arguments) | name ...": at least one filter.
  absl::StatusOr<std::vector<FilterCall>> ParseFilterCalls();

  // While it lives, expressions belong to a branch (`in_branch`) or are always reached.
  Scoped<bool> Within(bool in_branch) { return {&in_branch_, in_branch}; }
  // INVALID_ARGUMENT for the first unknown filter or test that is always reached.
  const absl::Status& unknown() const { return unknown_; }

 private:
  using Result = absl::StatusOr<ExpressionPointer>;

  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseCompare();
  Result ParseBinary(int level);
  Result ParseUnary(bool with_filter);
  Result ParsePrimary();
  Result ParseName();
  Result ParseNumber();
  Result ParseString();
  Result ParseParenthesized();
  Result ParseList();
  Result ParseDict();
  Result ParsePostfix(ExpressionPointer value);
  Result ParseSubscript(ExpressionPointer object);
  Result ParseFiltersAndTests(ExpressionPointer value);
  absl::StatusOr<FilterCall> ParseFilterCall();
  Result ParseTest(ExpressionPointer value);
  absl::StatusOr<Arguments> ParseArguments();
  bool StartsTestArgument() const;
  void RecordUnknown(std::string_view kind, const std::string& name, int line);

  // Completes a node: records its depth, the recursion depth of evaluation and destruction.
  template <typename Node>
  Result Make(int line, Node node);

  TokenCursor& tokens_;
  int nesting_ = 0;  // recursion depth of this parser
  bool in_branch_ = false;
  absl::Status unknown_;
};

}  // namespace moestro::text::jinja
