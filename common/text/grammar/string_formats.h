// Values of a schema's `format` as regular expressions of the whole string.
#pragma once

#include <string>
#include <string_view>

namespace moestro::text::grammar {

// Empty for a format without one.
std::string FormatPattern(std::string_view format);

}  // namespace moestro::text::grammar
