#include "common/batch/file_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace moestro::batch {

int WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(descriptor, text.data(), text.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return 0;
}

int ReadAt(int descriptor, uint64_t offset, std::string& text) {
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t bytes = ::pread(descriptor, text.data() + got, text.size() - got, static_cast<off_t>(offset + got));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return bytes < 0 ? errno : EIO;
    got += static_cast<size_t>(bytes);
  }
  return 0;
}

int SyncFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return error;
}

}  // namespace moestro::batch
