#include "common/text/jinja/token_cursor.h"

#include <algorithm>

#include "common/text/concat.h"

namespace moestro::text::jinja {
namespace {

std::string Describe(const LexerToken& token) {
  switch (token.kind) {
    case LexerToken::Kind::kData:
      return "text";
    case LexerToken::Kind::kVariableBegin:
      return "'{{'";
    case LexerToken::Kind::kVariableEnd:
      return "'}}'";
    case LexerToken::Kind::kBlockBegin:
      return "'{%'";
    case LexerToken::Kind::kBlockEnd:
      return "'%}'";
    case LexerToken::Kind::kString:
      return "a string";
    case LexerToken::Kind::kEnd:
      return "the end of the template";
    default:
      return Concat("'", token.text, "'");
  }
}

}  // namespace

absl::Status TokenCursor::Unexpected(std::string_view what) const {
  return TemplateError(line(), Concat("expected ", what, ", not ", Describe(Peek())));
}

bool TokenCursor::HasNameSince(size_t begin, std::string_view name) const {
  return std::any_of(
      tokens_.begin() + static_cast<int64_t>(begin), tokens_.begin() + static_cast<int64_t>(position_),
      [&](const LexerToken& token) { return token.kind == LexerToken::Kind::kName && token.text == name; });
}

absl::Status TokenCursor::Expect(LexerToken::Kind kind, std::string_view what) {
  return Skip(kind) ? absl::OkStatus() : Unexpected(what);
}

absl::Status TokenCursor::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? absl::OkStatus() : Unexpected(Concat("'", op, "'"));
}

absl::StatusOr<std::string> TokenCursor::ExpectName(std::string_view what) {
  if (!Is(LexerToken::Kind::kName)) return Unexpected(what);
  return Next().text;
}

}  // namespace moestro::text::jinja
