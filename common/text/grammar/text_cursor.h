// Reads a notation character by character, for the parsers of this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/text/utf8.h"

namespace moestro::text::grammar {

// Of the name of a rule.
inline bool IsNamePart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class TextCursor {
 public:
  // `text` is well-formed UTF-8.
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool AtEnd() const { return position_ == text_.size(); }
  std::string_view Rest() const { return text_.substr(position_); }
  char Peek() const { return AtEnd() ? '\0' : text_[position_]; }
  size_t position() const { return position_; }
  // Counts each character once, however often it is called.
  int line() {
    line_ += static_cast<int>(std::count(text_.begin() + counted_, text_.begin() + position_, '\n'));
    counted_ = position_;
    return line_;
  }

  void Advance(size_t bytes) { position_ += std::min(bytes, text_.size() - position_); }
  bool Skip(std::string_view expected) {
    if (!Rest().starts_with(expected)) return false;
    position_ += expected.size();
    return true;
  }
  std::string_view TakeName() {
    const std::string_view rest = Rest();
    const auto end = std::find_if_not(rest.begin(), rest.end(), IsNamePart);
    const std::string_view name = rest.substr(0, static_cast<size_t>(end - rest.begin()));
    Advance(name.size());
    return name;
  }
  // Not at the end.
  char32_t TakeCodePoint() {
    const Utf8Step step = ReadUtf8(text_, position_);
    position_ += step.length;
    return step.code_point;
  }
  // Exactly this many hexadecimal digits.
  std::optional<char32_t> TakeHex(size_t digits) {
    char32_t value = 0;
    if (Rest().size() < digits) return std::nullopt;
    for (const char c : Rest().substr(0, digits)) {
      const char lower = static_cast<char>(c | 0x20);
      const bool is_letter = lower >= 'a' && lower <= 'f';
      if (!is_letter && (c < '0' || c > '9')) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(is_letter ? lower - 'a' + 10 : c - '0');
    }
    position_ += digits;
    return value;
  }
  // One or more decimal digits, cut at 10^9.
  std::optional<int64_t> TakeNumber() {
    if (Peek() < '0' || Peek() > '9') return std::nullopt;
    int64_t value = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++position_)
      value = std::min<int64_t>(value * 10 + (Peek() - '0'), 1000000000);
    return value;
  }

 private:
  std::string_view text_;
  size_t position_ = 0;
  size_t counted_ = 0;  // characters before it are in line_
  int line_ = 1;
};

inline bool IsScalarValue(char32_t value) { return value < 0xD800 || (value > 0xDFFF && value <= 0x10FFFF); }

}  // namespace moestro::text::grammar
