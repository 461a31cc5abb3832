// Word characters in the sense of Unicode's regular expressions (UTS 18).
#pragma once

#include <string_view>

namespace moestro {

// Whether the one code point that `utf8` holds is alphabetic, a mark, a decimal digit, connector punctuation or a
// joiner. Thread-safe.
bool IsWord(std::string_view utf8);

}  // namespace moestro
