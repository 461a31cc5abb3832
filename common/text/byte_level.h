// The byte-level spelling of tokens: each of the 256 bytes is written as one printable code point, so that any byte
// string can be a key of a JSON vocabulary. Bytes 21-7E, A1-AC and AE-FF (hex) stand for themselves, the other 68 are
// U+0100, U+0101, ... in increasing order (space = U+0120, newline = U+010A).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

// UTF-8 spelling of the bytes.
std::string SpellBytes(std::string_view bytes);

// The bytes that a spelling stands for; empty if it holds a code point that spells no byte.
std::optional<std::string> UnspellBytes(std::string_view spelling);

}  // namespace moestro
