// Reads files that the user names on the command line.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// Reads the whole file; pipes and devices work too. NOT_FOUND names the file and the reason.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::StatusOr<std::string> ReadStdin();

}  // namespace moestro
