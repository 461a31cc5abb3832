// The tokens of a template during parsing.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/jinja/lexer.h"

namespace moestro::jinja {

class TokenStream {
 public:
  // `tokens` ends with kEnd, which is never consumed.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek() const { return tokens_[position_]; }
  // The token after the next one.
  const Token& PeekSecond() const { return tokens_[position_ + (Peek().kind == Token::Kind::kEnd ? 0 : 1)]; }
  int line() const { return Peek().line; }

  const Token& Next() {
    const Token& token = Peek();
    if (token.kind != Token::Kind::kEnd) ++position_;
    return token;
  }

  bool Is(Token::Kind kind) const { return Peek().kind == kind; }
  bool IsName(std::string_view name) const { return Is(Token::Kind::kName) && Peek().text == name; }
  bool IsOperator(std::string_view op) const { return Is(Token::Kind::kOperator) && Peek().text == op; }

  bool SkipName(std::string_view name) { return IsName(name) && Advance(); }
  bool SkipOperator(std::string_view op) { return IsOperator(op) && Advance(); }
  bool Skip(Token::Kind kind) { return Is(kind) && Advance(); }

  absl::Status Expect(Token::Kind kind, std::string_view what);
  absl::Status ExpectOperator(std::string_view op);
  absl::StatusOr<std::string> ExpectName(std::string_view what);
  // INVALID_ARGUMENT "expected <what>, not <the next token>".
  absl::Status Unexpected(std::string_view what) const;

 private:
  bool Advance() {
    Next();
    return true;
  }

  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace moestro::jinja
