// Writes report files.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace moestro {

// INVALID_ARGUMENT begins with `flag`, with which the user named the location.
absl::Status WriteReportFile(const char* flag, const std::filesystem::path& path, const std::string& text);
absl::Status MakeReportDirectory(const char* flag, const std::filesystem::path& path);  // with its parents

}  // namespace moestro
