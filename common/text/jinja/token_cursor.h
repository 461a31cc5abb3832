// The tokens of a template during parsing.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/jinja/lexer.h"

namespace moestro::text::jinja {

class TokenCursor {
 public:
  // `tokens` ends with kEnd, which is never consumed.
  explicit TokenCursor(std::vector<LexerToken> tokens) : tokens_(std::move(tokens)) {}

  const LexerToken& Peek() const { return tokens_[position_]; }
  // The token after the next one.
  const LexerToken& PeekSecond() const { return tokens_[position_ + (Peek().kind == LexerToken::Kind::kEnd ? 0 : 1)]; }
  int line() const { return Peek().line; }
  size_t position() const { return position_; }
  // Whether a token from `begin` to here is this name.
  bool HasNameSince(size_t begin, std::string_view name) const;

  const LexerToken& Next() {
    const LexerToken& token = Peek();
    if (token.kind != LexerToken::Kind::kEnd) ++position_;
    return token;
  }

  bool Is(LexerToken::Kind kind) const { return Peek().kind == kind; }
  bool IsName(std::string_view name) const { return Is(LexerToken::Kind::kName) && Peek().text == name; }
  bool IsOperator(std::string_view op) const { return Is(LexerToken::Kind::kOperator) && Peek().text == op; }

  bool SkipName(std::string_view name) { return IsName(name) && Advance(); }
  bool SkipOperator(std::string_view op) { return IsOperator(op) && Advance(); }
  bool Skip(LexerToken::Kind kind) { return Is(kind) && Advance(); }

  absl::Status Expect(LexerToken::Kind kind, std::string_view what);
  absl::Status ExpectOperator(std::string_view op);
  absl::StatusOr<std::string> ExpectName(std::string_view what);
  // INVALID_ARGUMENT "expected <what>, not <the next token>".
  absl::Status Unexpected(std::string_view what) const;

 private:
  bool Advance() {
    Next();
    return true;
  }

  std::vector<LexerToken> tokens_;
  size_t position_ = 0;
};

}  // namespace moestro::text::jinja
