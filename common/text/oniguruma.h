// Translates Oniguruma patterns, in which pre-tokenizers are written, to PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moestro::text {

// A PCRE2 pattern, for the options UTF, UCP and MULTILINE with newline LF, that matches what Oniguruma (Ruby syntax,
// UTF-8) matches with `pattern`. Differences between the dialects:
//   \s, \S         Unicode White_Space (PCRE2's \s has U+180E too)
//   \h, \H, \v     hexadecimal digit, anything else, U+000B (PCRE2: horizontal, vertical space)
//   \p{Script}     the script itself, without script extensions
//   [a&&[^b]c[d]]  set intersection and union inside a class
//   {,n}           from 0 to n times
// INVALID_ARGUMENT for a malformed class or escape. UNIMPLEMENTED for a construct with a different meaning that is not
// translated (\w, \b, POSIX brackets, named groups, {n,m}+, inline options other than (?i:...)). Code points assigned
// after PCRE2's version of Unicode have no properties in PCRE2.
absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern);

}  // namespace moestro::text
