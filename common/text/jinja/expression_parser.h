// Parses expressions with Jinja's precedence.
#pragma once

#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/token_cursor.h"

namespace moestro::text::jinja {

// All functions: INVALID_ARGUMENT with the line for a syntax error, an unknown filter or test, and nesting over
// kMaxNesting.
class ExpressionParser {
 public:
  // The stream must outlive this.
  explicit ExpressionParser(TokenCursor* tokens) : tokens_(*tokens) {}

  absl::StatusOr<ExpressionPointer> Parse();
  // Excludes "a if b else c", so that a following "if" remains: for the iterable of a for loop.
  absl::StatusOr<ExpressionPointer> ParseWithoutConditional();
  // "a, b" is a list; a single expression without a comma is not.
  absl::StatusOr<ExpressionPointer> ParseTuple();

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
  Result ParseFilter(ExpressionPointer value);
  Result ParseTest(ExpressionPointer value);
  absl::StatusOr<Arguments> ParseArguments();
  bool StartsTestArgument() const;

  // Completes a node: records its depth, the recursion depth of evaluation and destruction.
  template <typename Node>
  Result Make(int line, Node node);

  TokenCursor& tokens_;
  int nesting_ = 0;  // recursion depth of this parser
};

}  // namespace moestro::text::jinja
