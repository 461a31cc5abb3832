// Where reports are written.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace moestro {

// INVALID_ARGUMENT begins with `flag`, by which the user named the place.
absl::Status WriteReportFile(const char* flag, const std::filesystem::path& path, const std::string& text);
absl::Status MakeReportDirectory(const char* flag, const std::filesystem::path& path);  // with its parents

}  // namespace moestro
