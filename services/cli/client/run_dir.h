// The directory of a node's sockets, where a command was not told another.
#pragma once

#include <string>

namespace moestro::cli {

std::string DefaultRunDir();  // that of deploy/up

}  // namespace moestro::cli
