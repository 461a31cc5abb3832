#include "common/text/grammar/lark.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/text_cursor.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"

namespace moestro::text::grammar {
namespace {

class Translator {
 public:
  explicit Translator(std::string_view text) : cursor_(text) {}

  absl::StatusOr<std::string> Translate() {
    CopySpace(/*lines=*/true);
    while (!cursor_.AtEnd()) {
      MOE_RETURN_IF_ERROR(Statement());
      CopySpace(/*lines=*/true);
    }
    if (!has_start_) return absl::InvalidArgumentError("grammar: has no rule 'start'");
    return std::move(out_);
  }

 private:
  absl::Status Error(std::string_view what) {
    return absl::InvalidArgumentError(Concat("grammar line ", cursor_.line(), ": ", what));
  }

  // White space; comments are left out.
  void CopySpace(bool lines) {
    while (!cursor_.AtEnd()) {
      const char c = cursor_.Peek();
      if (c == '#' || cursor_.Rest().starts_with("//")) {
        cursor_.Advance(std::min(cursor_.Rest().find('\n'), cursor_.Rest().size()));
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        out_ += c;
        cursor_.Advance(1);
      } else {
        return;
      }
    }
  }

  // The root of GBNF is `root`, that of Lark `start`.
  void EmitName(std::string_view name) { out_ += name == "start" ? "root" : name == "root" ? "root-" : name; }

  absl::Status Statement() {
    if (cursor_.Skip("%")) {
      const std::string name(cursor_.TakeName());
      if (name != "llguidance") return Error(Concat("%", name, " is not supported"));
      cursor_.Advance(std::min(cursor_.Rest().find('\n'), cursor_.Rest().size()));  // its options
      return absl::OkStatus();
    }
    if (!cursor_.Skip("?")) cursor_.Skip("!");
    const std::string name(cursor_.TakeName());
    if (name.empty()) return Error("expected the name of a rule");
    if (cursor_.Skip("[")) MOE_RETURN_IF_ERROR(Attributes());
    if (cursor_.Skip(".")) cursor_.TakeNumber();  // its priority in a lexer
    CopySpace(/*lines=*/false);
    if (!cursor_.Skip(":")) return Error(Concat("expected ':' after ", Quoted(name)));
    has_start_ |= name == "start";
    EmitName(name);
    out_ += " ::=";
    return Body();
  }

  // Behind the bracket.
  absl::Status Attributes() {
    if (!cursor_.Skip("capture")) return Error("a rule may have the attribute capture only");
    if (cursor_.Skip("=")) {
      if (cursor_.Peek() != '"') return Error("expected a literal after capture=");
      MOE_RETURN_IF_ERROR(TakeQuoted('"').status());
    }
    return cursor_.Skip("]") ? absl::OkStatus() : Error("a rule may have the attribute capture only");
  }

  // Up to the end of its line, unless a bracket is open or the next line begins with "|".
  absl::Status Body() {
    while (true) {
      CopySpace(/*lines=*/!brackets_.empty());
      const TextCursor here = cursor_;
      const size_t written = out_.size();
      CopySpace(/*lines=*/true);
      const bool new_line = cursor_.Rest().data() != here.Rest().data();
      if (cursor_.AtEnd() || (new_line && cursor_.Peek() != '|')) {
        cursor_ = here;
        out_.resize(written);
        return brackets_.empty() ? absl::OkStatus()
                                 : Error(Concat("'", std::string(1, brackets_.back()), "' is missing"));
      }
      MOE_RETURN_IF_ERROR(Item());
    }
  }

  absl::Status Item() {
    const char c = cursor_.Peek();
    if (c == '"') return Literal();
    if (c == '/') return Expression();
    if (cursor_.Skip("->")) {  // the name of an alternative
      CopySpace(/*lines=*/false);
      cursor_.TakeName();
      return absl::OkStatus();
    }
    if (IsNamePart(c)) {
      EmitName(cursor_.TakeName());
      return absl::OkStatus();
    }
    if (c == '~') return Counts();
    if (c == '<' || c == '{') return CopyUntil(c == '<' ? '>' : '}');
    if (cursor_.Skip("%json")) {
      CopySpace(/*lines=*/true);
      const std::string_view schema = RawValue(cursor_.Rest());
      cursor_.Advance(schema.size());
      (out_ += "%json ") += schema;
      return absl::OkStatus();
    }
    if (c == '(' || c == '[') {
      brackets_ += c == '(' ? ')' : ']';
      out_ += '(';
    } else if (c == ')' || c == ']') {
      if (brackets_.empty() || brackets_.back() != c) return Error(Concat("'", std::string(1, c), "' closes nothing"));
      brackets_.pop_back();
      out_ += c == ')' ? ")" : ")?";
    } else if (c == '|' || c == '*' || c == '+' || c == '?') {
      out_ += c;
    } else {
      return Error(Concat("expected a literal, an expression or the name of a rule, not ",
                          Quoted(cursor_.Rest().substr(0, Utf8Length(c)))));
    }
    cursor_.Advance(1);
    return absl::OkStatus();
  }

  // What is between the quotes, as it was written.
  absl::StatusOr<std::string_view> TakeQuoted(char quote) {
    const std::string_view text = cursor_.Rest();
    size_t end = 1;
    while (end < text.size() && text[end] != quote && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size() || text[end] != quote) return Error(Concat("expected '", std::string(1, quote), "'"));
    cursor_.Advance(end + 1);
    return text.substr(1, end - 1);
  }

  absl::Status Literal() {
    MOE_ASSIGN_OR_RETURN(const std::string_view first, TakeQuoted('"'));
    if (cursor_.Skip("..")) {
      if (cursor_.Peek() != '"') return Error("expected a literal after '..'");
      MOE_ASSIGN_OR_RETURN(const std::string_view last, TakeQuoted('"'));
      out_ += Concat("[", InClass(first), "-", InClass(last), "]");
      return absl::OkStatus();
    }
    if (IsNamePart(cursor_.Peek())) return Error("a literal may have no flags");
    out_ += Concat("\"", first, "\"");
    return absl::OkStatus();
  }

  static std::string InClass(std::string_view character) {
    const bool is_special = character == "]" || character == "[" || character == "^" || character == "-";
    return Concat(is_special ? "\\" : "", character);
  }

  absl::Status Expression() {
    MOE_ASSIGN_OR_RETURN(const std::string_view text, TakeQuoted('/'));
    if (IsNamePart(cursor_.Peek())) return Error("an expression may have no flags");
    out_ += "%regex \"";
    for (const char c : text) {
      if (c == '\\' || c == '"') out_ += '\\';
      out_ += c;
    }
    out_ += '"';
    return absl::OkStatus();
  }

  // "~ 2" or "~ 2..3".
  absl::Status Counts() {
    cursor_.Advance(1);
    CopySpace(/*lines=*/false);
    const auto least = cursor_.TakeNumber();
    const bool is_range = cursor_.Skip("..");
    const auto most = is_range ? cursor_.TakeNumber() : least;
    if (!least || !most) return Error("expected a count such as ~ 2 or ~ 2..5");
    out_ += is_range ? Concat("{", *least, ",", *most, "}") : Concat("{", *least, "}");
    return absl::OkStatus();
  }

  absl::Status CopyUntil(char end) {
    const size_t bytes = cursor_.Rest().find_first_of(std::string{end, '\n'});
    if (bytes == std::string_view::npos || cursor_.Rest()[bytes] != end) {
      return Error(Concat("expected '", std::string(1, end), "'"));
    }
    out_ += cursor_.Rest().substr(0, bytes + 1);
    cursor_.Advance(bytes + 1);
    return absl::OkStatus();
  }

  TextCursor cursor_;
  std::string out_;
  bool has_start_ = false;
  std::string brackets_;  // those that close the open ones
};

}  // namespace

bool IsLark(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    if (line[begin] == '%' || line.substr(begin).starts_with("//")) return true;
    const size_t colon = line.find(':');
    return colon != std::string_view::npos && line.substr(colon, 3) != "::=";
  }
  return false;
}

absl::StatusOr<std::string> LarkToGbnf(std::string_view text) {
  if (const auto offset = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError(Concat("grammar: invalid UTF-8 at byte ", *offset));
  }
  return Translator(text).Translate();
}

}  // namespace moestro::text::grammar
