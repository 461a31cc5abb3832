#include "common/text/oniguruma.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/pcre2_code.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

constexpr int kMaxClassDepth = 16;
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    std::string out;
    while (!AtEnd()) {
      MOE_ASSIGN_OR_RETURN(const std::string part, Part());
      out += part;
    }
    return out;
  }

 private:
  bool AtEnd() const { return position_ == pattern_.size(); }
  std::string_view Rest() const { return pattern_.substr(position_); }
  bool Skip(std::string_view text) {
    if (!Rest().starts_with(text)) return false;
    position_ += text.size();
    return true;
  }
  // Takes one code point; the pattern is valid UTF-8.
  std::string_view Take() {
    const std::string_view taken = pattern_.substr(position_, Utf8Length(pattern_[position_]));
    position_ += taken.size();
    return taken;
  }

  absl::Status Malformed(std::string_view what) const {
    return absl::InvalidArgumentError(Concat("regular expression, offset ", position_, ": ", what));
  }
  absl::Status Unsupported(std::string_view what) const {
    return absl::UnimplementedError(Concat("regular expression, offset ", position_, ": ", what,
                                           " has another meaning in PCRE2 and is not translated"));
  }

  absl::StatusOr<std::string> Part() {
    switch (pattern_[position_]) {
      case '\\':
        return Escape(/*in_class=*/false);
      case '[':
        return Class(/*depth=*/0);
      case '(':
        return GroupStart();
      case '{':
        return Interval();
      default:
        return std::string(Take());
    }
  }

  absl::StatusOr<std::string> GroupStart() {
    if (!Rest().starts_with("(?")) return std::string(Take());
    for (const std::string_view start : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (Skip(start)) return std::string(start);
    }
    return Unsupported("this kind of group");
  }

  // {n} {n,} {n,m} {,m}; any other brace is literal.
  absl::StatusOr<std::string> Interval() {
    const size_t close = Rest().find('}');
    const std::string_view body = close == std::string_view::npos ? "" : Rest().substr(1, close - 1);
    if (body.find_first_of("0123456789") == std::string_view::npos ||
        body.find_first_not_of("0123456789,") != std::string_view::npos || body.find(',') != body.rfind(',')) {
      ++position_;
      return std::string("\\{");
    }
    position_ += close + 1;
    if (Rest().starts_with("+")) return Unsupported("'+' after {n,m}");
    return Concat("{", body.starts_with(",") ? "0" : "", body, "}");
  }

  absl::StatusOr<std::string> Escape(bool in_class) {
    ++position_;
    if (AtEnd()) return Malformed("ends with a backslash");
    const std::string_view escaped = Take();
    const char c = escaped[0];
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      return static_cast<unsigned char>(c) < 0x80 ? Concat("\\", escaped) : std::string(escaped);
    }
    switch (c) {
      case 's':
        return std::string("\\p{White_Space}");
      case 'S':
        return std::string("\\P{White_Space}");
      case 'h':
        return in_class ? std::string(kHexDigits) : Concat("[", kHexDigits, "]");
      case 'H':
        if (!in_class) return Concat("[^", kHexDigits, "]");
        break;
      case 'v':
        return std::string("\\x0B");
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return Concat("\\", escaped);
      case 'A':
      case 'z':
      case 'Z':
        if (!in_class) return Concat("\\", escaped);
        break;
      case 'p':
      case 'P':
        return Property(c);
      case 'u':
        return CodePoint(4);
      case 'x':
        return Skip("{") ? CodePointInBraces() : CodePoint(2);
      default:
        break;
    }
    return Unsupported(Concat("\\", escaped));
  }

  absl::StatusOr<std::string> CodePoint(size_t digits) {
    const std::string_view text = Rest().substr(0, digits);
    if (text.size() != digits || !IsHex(text)) return Malformed("expected hexadecimal digits");
    // Oniguruma reads \x80 and above as a raw byte of the encoding.
    if (digits == 2 && text[0] >= '8') return Unsupported("\\x80 and above");
    position_ += digits;
    return Concat("\\x{", text, "}");
  }

  absl::StatusOr<std::string> CodePointInBraces() {
    const size_t close = Rest().find('}');
    if (close == std::string_view::npos || close == 0 || !IsHex(Rest().substr(0, close))) {
      return Malformed("expected hexadecimal digits and '}'");
    }
    const std::string_view text = Rest().substr(0, close);
    position_ += close + 1;
    return Concat("\\x{", text, "}");
  }

  static bool IsHex(std::string_view text) {
    for (const char c : text) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
    }
    return true;
  }

  absl::StatusOr<std::string> Property(char letter) {
    if (!Skip("{")) return Malformed("expected '{' after \\p");
    const bool negated = Skip("^") != (letter == 'P');
    const size_t close = Rest().find('}');
    const std::string_view name = Rest().substr(0, close);
    for (const char c : name) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != ' ') {
        return Malformed("malformed property name");
      }
    }
    if (close == std::string_view::npos || close == 0) return Malformed("malformed property name");
    position_ += close + 1;
    const std::string_view prefix = IsScript(name) ? "sc:" : "";
    return Concat(negated ? "\\P{" : "\\p{", prefix, name, "}");
  }

  static bool IsScript(std::string_view name) { return CompilePcre2(Concat("\\p{sc:", name, "}")).ok(); }

  // A class becomes an expression that matches one code point: a PCRE2 class if there are no nested sets. Otherwise
  // alternatives for a union and look-aheads for an intersection.
  absl::StatusOr<std::string> Class(int depth) {
    if (depth > kMaxClassDepth) return Malformed("classes are nested too deeply");
    ++position_;
    const bool negated = Skip("^");
    std::vector<std::string> operands;
    do {
      MOE_ASSIGN_OR_RETURN(std::string operand, Union(depth));
      operands.push_back(std::move(operand));
    } while (Skip("&&"));
    if (!Skip("]")) return Malformed("expected ']'");
    const std::string last = std::move(operands.back());
    operands.pop_back();
    std::string all = last;
    if (!operands.empty()) all = Concat("(?:(?=", absl::StrJoin(operands, ")(?="), ")", last, ")");
    return negated ? Negate(all) : all;
  }

  // Composite sets start with "(?:"; a set that starts with "[" is a single class.
  static std::string Negate(const std::string& set) {
    if (set.starts_with("[") && !set.starts_with("[^")) return Concat("[^", set.substr(1));
    return Concat("(?:(?!", set, ")(?s:.))");
  }

  // Parses the members up to "&&" or "]".
  absl::StatusOr<std::string> Union(int depth) {
    std::string members;
    std::vector<std::string> sets;
    while (!AtEnd() && !Rest().starts_with("&&") && pattern_[position_] != ']') {
      if (Rest().starts_with("[:")) return Unsupported("a POSIX bracket");
      if (pattern_[position_] == '[') {
        MOE_ASSIGN_OR_RETURN(std::string set, Class(depth + 1));
        sets.push_back(std::move(set));
      } else if (pattern_[position_] == '\\') {
        MOE_ASSIGN_OR_RETURN(const std::string member, Escape(/*in_class=*/true));
        members += member;
      } else {
        members += Take();
      }
    }
    if (members.starts_with("^")) members = Concat("\\", members);
    if (!members.empty()) sets.push_back(Concat("[", members, "]"));
    if (sets.empty()) return Malformed("empty set in a class");
    return sets.size() == 1 ? sets[0] : Concat("(?:", absl::StrJoin(sets, "|"), ")");
  }

  std::string_view pattern_;
  size_t position_ = 0;
};

}  // namespace

absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern) {
  if (const auto offset = FindInvalidUtf8(pattern)) {
    return absl::InvalidArgumentError(Concat("regular expression: invalid UTF-8 at byte ", *offset));
  }
  return Translator(pattern).Run();
}

}  // namespace moestro::text
