#include "common/text/jinja/string_literal.h"

#include <charconv>

#include "common/text/utf8.h"

namespace moestro::text::jinja {
namespace {

// The letter after the backslash, then the character that it represents.
constexpr std::string_view kSimpleEscapes[] = {"n\n", "r\r", "t\t", "b\b", "f\f", "v\v", "a\a", "\\\\", "''", "\"\""};

int HexDigits(char letter) { return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0; }

std::optional<char32_t> ParseCodePoint(std::string_view digits, int count) {
  if (static_cast<int>(digits.size()) < count) return std::nullopt;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + count, value, 16);
  const bool is_scalar = value < 0x110000 && (value < 0xD800 || value > 0xDFFF);
  if (error != std::errc() || end != digits.data() + count || !is_scalar) return std::nullopt;
  return value;
}

bool AppendSimple(char letter, std::string* out) {
  for (const std::string_view escape : kSimpleEscapes) {
    if (escape[0] != letter) continue;
    out->push_back(escape[1]);
    return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> ResolveEscapes(std::string_view literal) {
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      out.push_back(literal[i]);
      continue;
    }
    const char letter = literal[++i];  // the lexer never ends a literal with a lone backslash
    if (const int digits = HexDigits(letter); digits > 0) {
      const auto code_point = ParseCodePoint(literal.substr(i + 1), digits);
      if (!code_point.has_value()) return std::nullopt;
      AppendUtf8(*code_point, &out);
      i += digits;
    } else if (letter >= '0' && letter <= '7') {
      const bool more = i + 1 < literal.size() && literal[i + 1] >= '0' && literal[i + 1] <= '7';
      if (letter != '0' || more) return std::nullopt;
      out.push_back('\0');
    } else if (letter == 'N') {
      return std::nullopt;
    } else if (letter != '\n' && !AppendSimple(letter, &out)) {
      out.push_back('\\');
      out.push_back(letter);
    }
  }
  return out;
}

}  // namespace moestro::text::jinja
