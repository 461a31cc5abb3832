// Escapes in string literals.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro::text::jinja {

// Python's escapes: \n \r \t \b \f \v \a \0 \\ \' \" \xHH \uHHHH \UHHHHHHHH and a continued line. An unknown escape is
// kept, backslash included. Empty for a malformed or non-scalar code point, octal other than \0, and \N{}.
std::optional<std::string> ResolveEscapes(std::string_view literal);

}  // namespace moestro::text::jinja
