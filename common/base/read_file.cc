#include "common/base/read_file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace moestro {
namespace {

absl::Status CannotRead(const std::string& name) {
  return absl::NotFoundError(absl::StrCat(name, ": cannot be read: ", std::strerror(errno)));
}

// Reads to the end. A directory can be opened but not read, hence the error check.
absl::StatusOr<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string content;
  std::array<char, 1 << 16> buffer;
  while (const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file)) content.append(buffer.data(), bytes);
  if (std::ferror(file) != 0) return CannotRead(name);
  return content;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return CannotRead(path);
  return ReadAll(file.get(), path);
}

absl::StatusOr<std::string> ReadStdin() { return ReadAll(stdin, "stdin"); }

}  // namespace moestro
