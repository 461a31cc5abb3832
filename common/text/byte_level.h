// The byte-level spelling of tokens: each of the 256 bytes is one printable code point, so that any byte string can be
// a key of a JSON vocabulary. Bytes 21-7E, A1-AC and AE-FF (hex) represent themselves. The other 68 are U+0100, U+0101,
// ... in ascending order (space = U+0120, newline = U+010A).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro::text {

// UTF-8 spelling of the bytes.
std::string SpellBytes(std::string_view bytes);

// The bytes of a spelling; empty if a code point does not spell a byte.
std::optional<std::string> UnspellBytes(std::string_view spelling);

}  // namespace moestro::text
