#include "common/text/jinja/lexer.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/string_literal.h"
#include "common/text/jinja/strings.h"
#include "common/text/utf8.h"

namespace moestro::text::jinja {
namespace {

using Kind = LexerToken::Kind;

// Longest first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsNameStart(char c) { return c == '_' || absl::ascii_isalpha(static_cast<unsigned char>(c)); }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<LexerToken>> Run() {
    while (!AtEnd()) MOE_RETURN_IF_ERROR(LexDataAndTag());
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool AtEnd() const { return position_ == source_.size(); }
  std::string_view Rest() const { return source_.substr(position_); }
  void Add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  absl::Status Error(std::string_view message) const { return TemplateError(line_, message); }

  std::string_view Take(size_t length) {
    const std::string_view taken = source_.substr(position_, length);
    position_ += taken.size();
    line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
    return taken;
  }
  bool Skip(std::string_view text) {
    if (!Rest().starts_with(text)) return false;
    Take(text.size());
    return true;
  }
  void SkipSpace() { Take(Rest().size() - StripSpace(Rest(), Side::kLeft).size()); }

  static size_t FindTag(std::string_view text) {
    for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
      if (at + 1 < text.size() && std::string_view("{%#").find(text[at + 1]) != std::string_view::npos) return at;
    }
    return text.size();
  }

  absl::Status LexDataAndTag() {
    const size_t length = FindTag(Rest());
    const std::string_view data = Rest().substr(0, length);
    const std::string_view tag = Rest().substr(length, 3);  // "{%", "{{" or "{#" and the white space control
    AddData(tag.empty() ? data : StripBeforeTag(data, tag));
    Take(length);
    if (AtEnd()) return absl::OkStatus();
    const int begin_line = line_;
    Take(2);
    if (tag.ends_with('-') || tag.ends_with('+')) Take(1);
    if (tag.starts_with("{#")) return SkipComment(begin_line);
    const bool is_block = tag.starts_with("{%");
    if (is_block && SkipRawBegin()) return LexRaw(begin_line);
    Add(is_block ? Kind::kBlockBegin : Kind::kVariableBegin, "");
    return LexInside(is_block);
  }

  void AddData(std::string_view data) {
    if (!data.empty()) Add(Kind::kData, std::string(data));
  }

  // White space before a tag that belongs to the tag: all with "-"; otherwise the indentation, if the line has nothing
  // else before a block or comment.
  std::string_view StripBeforeTag(std::string_view data, std::string_view tag) const {
    if (tag.ends_with('-')) return StripSpace(data, Side::kRight);
    if (tag.ends_with('+') || tag.starts_with("{{")) return data;
    const size_t newline = data.rfind('\n');
    if (newline == std::string_view::npos && !at_line_start_) return data;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    return StripSpace(data.substr(line_begin), Side::kLeft).empty() ? data.substr(0, line_begin) : data;
  }

  // The end of a tag, `close` being "}}", "%}" or "#}", including its white space.
  bool SkipTagEnd(std::string_view close) {
    const size_t begin = position_;
    if (Skip(Concat("-", close))) {
      SkipSpace();
    } else if (close == "}}") {
      if (!Skip(close)) return false;
    } else if (!Skip(Concat("+", close))) {
      if (!Skip(close)) return false;
      Skip("\n");
    }
    at_line_start_ = position_ > begin && source_[position_ - 1] == '\n';
    return true;
  }

  absl::Status SkipComment(int begin_line) {
    size_t end = Rest().find("#}");
    if (end == std::string_view::npos) return TemplateError(begin_line, "comment without '#}'");
    if (end > 0 && (Rest()[end - 1] == '-' || Rest()[end - 1] == '+')) --end;
    Take(end);
    SkipTagEnd("#}");
    return absl::OkStatus();
  }

  // After "{%": the rest of "{% raw %}".
  bool SkipRawBegin() {
    const std::string_view rest = StripSpace(Rest(), Side::kLeft);
    if (!rest.starts_with("raw")) return false;
    const std::string_view close = StripSpace(rest.substr(3), Side::kLeft);
    const bool strip = close.starts_with("-%}");
    if (!strip && !close.starts_with("%}")) return false;
    Take(Rest().size() - close.size() + (strip ? 3 : 2));
    if (strip) SkipSpace();
    at_line_start_ = source_[position_ - 1] == '\n';
    return true;
  }

  absl::Status LexRaw(int begin_line) {
    const std::string_view body = Rest();
    for (size_t at = body.find("{%"); at != std::string_view::npos; at = body.find("{%", at + 1)) {
      std::string_view inside = body.substr(at + 2);
      if (inside.starts_with('-') || inside.starts_with('+')) inside.remove_prefix(1);
      inside = StripSpace(inside, Side::kLeft);
      if (!inside.starts_with("endraw")) continue;
      inside = StripSpace(inside.substr(6), Side::kLeft);
      AddData(StripBeforeTag(body.substr(0, at), body.substr(at, 3)));
      Take(body.size() - inside.size());
      return SkipTagEnd("%}") ? absl::OkStatus() : Error("expected '%}' after 'endraw'");
    }
    return TemplateError(begin_line, "'raw' without 'endraw'");
  }

  absl::Status LexInside(bool is_block) {
    const int begin_line = line_;
    std::string open_brackets;  // a tag cannot end inside brackets
    while (true) {
      SkipSpace();
      if (AtEnd()) return TemplateError(begin_line, is_block ? "block without '%}'" : "expression without '}}'");
      if (open_brackets.empty() && SkipTagEnd(is_block ? "%}" : "}}")) {
        Add(is_block ? Kind::kBlockEnd : Kind::kVariableEnd, "");
        return absl::OkStatus();
      }
      MOE_RETURN_IF_ERROR(LexToken(&open_brackets));
    }
  }

  absl::Status LexToken(std::string* open_brackets) {
    const char c = Rest()[0];
    if (IsNameStart(c)) {
      const auto end = std::find_if_not(Rest().begin(), Rest().end(), IsNamePart);
      Add(Kind::kName, std::string(Take(end - Rest().begin())));
      return absl::OkStatus();
    }
    if (IsDigit(c)) return LexNumber();
    if (c == '\'' || c == '"') return LexString(c);
    for (const std::string_view op : kOperators) {
      if (!Rest().starts_with(op)) continue;
      MOE_RETURN_IF_ERROR(Balance(op, open_brackets));
      Add(Kind::kOperator, std::string(op));
      Take(op.size());
      return absl::OkStatus();
    }
    return Error(Concat("unexpected character '", Rest().substr(0, Utf8Length(c)), "'"));
  }

  absl::Status Balance(std::string_view op, std::string* open_brackets) const {
    constexpr std::string_view kOpen = "([{";
    constexpr std::string_view kClose = ")]}";
    if (kOpen.find(op) != std::string_view::npos) {
      open_brackets->append(op);
    } else if (const size_t kind = kClose.find(op); kind != std::string_view::npos) {
      if (!open_brackets->ends_with(kOpen[kind])) return Error(Concat("'", op, "' has no opening bracket"));
      open_brackets->pop_back();
    }
    return absl::OkStatus();
  }

  size_t DigitsAt(size_t offset) const {
    const std::string_view rest = Rest().substr(std::min(offset, Rest().size()));
    return std::find_if_not(rest.begin(), rest.end(), IsDigit) - rest.begin();
  }

  absl::Status LexNumber() {
    size_t length = DigitsAt(0);
    bool is_float = false;
    if (length < Rest().size() && Rest()[length] == '.' && DigitsAt(length + 1) > 0) {
      length += 1 + DigitsAt(length + 1);
      is_float = true;
    }
    if (length < Rest().size() && (Rest()[length] == 'e' || Rest()[length] == 'E')) {
      const bool has_sign = length + 1 < Rest().size() && (Rest()[length + 1] == '+' || Rest()[length + 1] == '-');
      const size_t mantissa = length + 1 + (has_sign ? 1 : 0);
      if (DigitsAt(mantissa) > 0) {
        length = mantissa + DigitsAt(mantissa);
        is_float = true;
      }
    }
    if (length < Rest().size() && IsNamePart(Rest()[length])) return Error("malformed number");
    Add(is_float ? Kind::kFloat : Kind::kInteger, std::string(Take(length)));
    return absl::OkStatus();
  }

  absl::Status LexString(char quote) {
    const std::string_view rest = Rest();
    size_t end = 1;
    while (end < rest.size() && rest[end] != quote) end += rest[end] == '\\' ? 2 : 1;
    if (end >= rest.size()) return Error("string without closing quote");
    const std::optional<std::string> text = ResolveEscapes(rest.substr(1, end - 1));
    if (!text.has_value()) return Error("malformed escape in a string");
    Add(Kind::kString, *text);
    Take(end + 1);
    return absl::OkStatus();
  }

  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // the last tag, or the source, ended at the start of a line
  std::vector<LexerToken> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<LexerToken>> Tokenize(std::string_view source) {
  if (const auto offset = FindInvalidUtf8(source)) {
    return absl::InvalidArgumentError(Concat("template: invalid UTF-8 at byte ", *offset));
  }
  const std::string normalized = NormalizeNewlines(source);
  return Lexer(normalized).Run();
}

absl::Status TemplateError(int line, std::string_view message) {
  return absl::InvalidArgumentError(Concat("template line ", line, ": ", message));
}

}  // namespace moestro::text::jinja
