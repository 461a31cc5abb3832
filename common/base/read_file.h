// How command lines read what the user names.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// Whole, to its end: pipes and devices as well. NOT_FOUND names the file and says why it cannot be read.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::StatusOr<std::string> ReadStdin();

}  // namespace moestro
