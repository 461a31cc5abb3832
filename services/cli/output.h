// How the commands print.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace moestro {

enum class Stream { kStdin = 0, kStdout = 1, kStderr = 2 };  // values: the file descriptors
bool IsTerminal(Stream stream);

// "1.50 GiB", "37 B"
std::string HumanBytes(int64_t bytes);
// "671.026 B", "28.3 M", "12"
std::string HumanCount(int64_t count);

// On stdout, with a newline; one line unless `indent`. Bytes that are not UTF-8 become U+FFFD.
void PrintJson(const nlohmann::json& json, bool indent);

// On stdout, at once; OutputStatus says whether it got there.
void PrintText(std::string_view text);

// DATA_LOSS if anything that was printed so far could not be written: a full disk, a reader that is gone.
absl::Status OutputStatus();

}  // namespace moestro
