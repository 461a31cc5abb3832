// Regular files, opened for reading only.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace moestro::checkpoint {

// Size and time stamp are those at opening. Movable; closes its descriptor. Several threads may call ReadAt
// concurrently.
class ReadOnlyFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED etc. from the system; INVALID_ARGUMENT for anything but a regular file (a symbolic
  // link to one is accepted) and for a pointer of git-lfs. Never blocks on a pipe.
  static absl::StatusOr<ReadOnlyFile> Open(const std::string& path);

  ReadOnlyFile(ReadOnlyFile&& other) noexcept;
  ReadOnlyFile& operator=(ReadOnlyFile&& other) noexcept;
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
  ~ReadOnlyFile();

  // Reads exactly `bytes` bytes. OUT_OF_RANGE if the range exceeds the file, DATA_LOSS if the file was truncated since
  // it was opened.
  absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const;

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  int64_t size() const { return size_; }          // bytes
  int64_t mtime_ns() const { return mtime_ns_; }  // since the epoch

 private:
  ReadOnlyFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t mtime_ns_ = 0;
};

// The whole file. INVALID_ARGUMENT if it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);

}  // namespace moestro::checkpoint
