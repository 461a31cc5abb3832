// Word characters as defined for Unicode's regular expressions (UTS 18).
#pragma once

#include <string_view>

namespace moestro::text {

// Whether the single code point in `utf8` is alphabetic, a mark, a decimal digit, connector punctuation or a joiner.
// Thread-safe.
bool IsWord(std::string_view utf8);

}  // namespace moestro::text
