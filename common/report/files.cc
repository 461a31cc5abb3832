#include "common/report/files.h"

#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace moestro {

absl::Status WriteReportFile(const char* flag, const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": cannot write ", path.string()));
}

absl::Status MakeReportDirectory(const char* flag, const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path.string(), ": ", error.message()));
}

}  // namespace moestro
