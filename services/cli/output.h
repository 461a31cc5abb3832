// Output functions for the commands.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/status.h"

namespace moestro::cli {

enum class StandardStream { kStdin = 0, kStdout = 1, kStderr = 2 };  // values: the file descriptors
bool IsTerminal(StandardStream stream);

// Prints to stdout, with a newline; on one line unless `indent`. Invalid UTF-8 becomes U+FFFD.
void PrintJson(const nlohmann::json& json, bool indent);

// Prints to stdout at once. OutputStatus reports failures.
void PrintText(std::string_view text);

// DATA_LOSS if any output so far could not be written: a full disk, or a closed pipe.
absl::Status OutputStatus();

}  // namespace moestro::cli
