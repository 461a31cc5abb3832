// How the commands print.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/status.h"

namespace moestro {

enum class Stream { kStdin = 0, kStdout = 1, kStderr = 2 };  // values: the file descriptors
bool IsTerminal(Stream stream);

// On stdout, with a newline; one line unless `indent`. Bytes that are not UTF-8 become U+FFFD.
void PrintJson(const nlohmann::json& json, bool indent);

// On stdout, at once; OutputStatus says whether it got there.
void PrintText(std::string_view text);

// DATA_LOSS if anything that was printed so far could not be written: a full disk, a reader that is gone.
absl::Status OutputStatus();

}  // namespace moestro
