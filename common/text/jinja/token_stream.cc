#include "common/text/jinja/token_stream.h"

#include "common/text/concat.h"

namespace moestro::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData:
      return "text";
    case Token::Kind::kVariableBegin:
      return "'{{'";
    case Token::Kind::kVariableEnd:
      return "'}}'";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kString:
      return "a string";
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return Concat("'", token.text, "'");
  }
}

}  // namespace

absl::Status TokenStream::Unexpected(std::string_view what) const {
  return TemplateError(line(), Concat("expected ", what, ", not ", Describe(Peek())));
}

absl::Status TokenStream::Expect(Token::Kind kind, std::string_view what) {
  return Skip(kind) ? absl::OkStatus() : Unexpected(what);
}

absl::Status TokenStream::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? absl::OkStatus() : Unexpected(Concat("'", op, "'"));
}

absl::StatusOr<std::string> TokenStream::ExpectName(std::string_view what) {
  if (!Is(Token::Kind::kName)) return Unexpected(what);
  return Next().text;
}

}  // namespace moestro::jinja
