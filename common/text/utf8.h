// UTF-8: decoding, validation and repair, without locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moestro::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The sequence at a byte offset. `length` is >= 1 unless the text ends there.
struct Utf8Step {
  enum class Kind {
    kCodePoint,   // a well-formed sequence of `length` bytes: `code_point`
    kInvalid,     // `length` bytes that no continuation can make well-formed (a maximal ill-formed subpart)
    kIncomplete,  // the text ends inside a sequence that is well-formed so far
  };
  Kind kind;
  int length;
  char32_t code_point;
};

// Reads the sequence at `offset` < text.size(). Surrogates, overlong forms and values over U+10FFFF are invalid.
Utf8Step ReadUtf8(std::string_view text, size_t offset);

// Offset of the first byte that is not part of a well-formed sequence; empty if the whole text is well-formed.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// Appends one code point, which must be a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* out);

// Byte length of the well-formed sequence that `lead` starts.
inline int Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The Unicode property White_Space.
bool IsUnicodeSpace(char32_t code_point);

}  // namespace moestro::text
