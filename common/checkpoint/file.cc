#include "common/checkpoint/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moestro::checkpoint {
namespace {

// Linux transfers at most 2 GiB - 4 KiB in one call.
constexpr int64_t kMaxRead = int64_t{1} << 30;

// A repository that was cloned without git-lfs has small texts in the place of large files.
constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";
constexpr int64_t kMaxLfsPointerBytes = 1024;  // of the format

absl::Status CheckIsNoLfsPointer(const ReadOnlyFile& file) {
  if (file.size() < std::ssize(kLfsPointer) || file.size() > kMaxLfsPointerBytes) return absl::OkStatus();
  std::array<char, kLfsPointer.size()> first;
  MOE_RETURN_IF_ERROR(file.ReadAt(0, first.data(), std::ssize(first)));
  if (std::string_view(first.data(), first.size()) != kLfsPointer) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(),
      ": a pointer of git-lfs, not the file that it stands for: run git lfs pull in the repository, or get "
      "the model with hf download"));
}

}  // namespace

absl::StatusOr<ReadOnlyFile> ReadOnlyFile::Open(const std::string& path) {
  // O_NONBLOCK only affects files that are refused below: opening a pipe would wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  ReadOnlyFile file(path, fd);
  struct stat info;
  if (::fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot stat"));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  file.size_ = info.st_size;
  file.mtime_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  MOE_RETURN_IF_ERROR(CheckIsNoLfsPointer(file));
  return file;
}

ReadOnlyFile::ReadOnlyFile(ReadOnlyFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      mtime_ns_(other.mtime_ns_) {}

ReadOnlyFile& ReadOnlyFile::operator=(ReadOnlyFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(mtime_ns_, other.mtime_ns_);
  return *this;
}

ReadOnlyFile::~ReadOnlyFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status ReadOnlyFile::ReadAt(int64_t offset, void* dst, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > size_ || bytes > size_ - offset) {
    return absl::OutOfRangeError(
        absl::StrCat(path_, ": cannot read ", bytes, " bytes at offset ", offset, " of a file of ", size_, " bytes"));
  }
  char* out = static_cast<char*>(dst);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, out, static_cast<size_t>(std::min(bytes, kMaxRead)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot read at offset ", offset));
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, ": was truncated while it was being read"));
    out += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  MOE_ASSIGN_OR_RETURN(const ReadOnlyFile file, ReadOnlyFile::Open(path));
  if (file.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.size(), " bytes, more than the limit of ", max_bytes, " for this kind of file"));
  }
  std::string content(static_cast<size_t>(file.size()), '\0');
  MOE_RETURN_IF_ERROR(file.ReadAt(0, content.data(), file.size()));
  return content;
}

}  // namespace moestro::checkpoint
