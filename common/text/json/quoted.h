// Names that come from files, made safe for error messages.
#pragma once

#include <string>
#include <string_view>

namespace moestro::text {

// Escapes control characters and invalid UTF-8, and cuts to 160 bytes: the result may be logged and sent over gRPC.
std::string Printable(std::string_view text);

// 'text', made printable.
std::string Quoted(std::string_view text);

}  // namespace moestro::text
