// Names that come from files, made safe for error messages.
#pragma once

#include <string>
#include <string_view>

namespace moestro {

// Control characters and invalid UTF-8 escaped, cut to 160 bytes: such a text may be logged and sent over gRPC.
std::string Printable(std::string_view text);

// 'text', printable.
std::string Quoted(std::string_view text);

}  // namespace moestro
