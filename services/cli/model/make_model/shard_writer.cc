#include "services/cli/model/make_model/shard_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "services/cli/model/make_model/tensor_values.h"

namespace moestro::cli {
namespace {

class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return Failure(path, "cannot create");
    return OutputFile(path, fd);
  }
  OutputFile(OutputFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Thread-safe.
  absl::Status WriteAt(int64_t offset, const void* data, int64_t size) const {
    const char* from = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::pwrite(fd_, from, static_cast<size_t>(size), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failure(path_, "cannot write");
      from += n;
      offset += n;
      size -= n;
    }
    return absl::OkStatus();
  }

  absl::Status Extend(int64_t size) const {
    return ::ftruncate(fd_, size) == 0 ? absl::OkStatus() : Failure(path_, "cannot extend");
  }

  absl::Status Close() {
    if (::close(std::exchange(fd_, -1)) != 0) return Failure(path_, "cannot finish");
    return absl::OkStatus();
  }

 private:
  OutputFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  static absl::Status Failure(const std::filesystem::path& path, const char* what) {
    const int error = errno;
    const std::string message = absl::StrCat(what, " ", path.string(), ": ", std::strerror(error));
    if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
    return absl::UnavailableError(message);
  }

  std::filesystem::path path_;
  int fd_ = -1;
};

// Takes pieces until none is left or a thread has failed.
absl::Status WritePieces(const OutputFile& file, const std::vector<FilePiece>& pieces, std::atomic<size_t>& next,
                         std::atomic<bool>& failed, BytesWritten written) {
  std::vector<std::byte> buffer;
  for (size_t i = next++; i < pieces.size() && !failed; i = next++) {
    const FilePiece& piece = pieces[i];
    if (std::ssize(buffer) < piece.bytes) buffer.resize(static_cast<size_t>(piece.bytes));
    piece.fill(buffer.data());
    if (absl::Status status = file.WriteAt(piece.offset, buffer.data(), piece.bytes); !status.ok()) {
      failed = true;
      return status;
    }
    written(piece.bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFile(const std::filesystem::path& path, std::string_view header, const std::vector<FilePiece>& pieces,
                       int64_t bytes, int threads, BytesWritten written) {
  MOE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  MOE_RETURN_IF_ERROR(file.WriteAt(0, header.data(), std::ssize(header)));
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::vector<absl::Status> results(threads);
  {
    std::vector<std::jthread> workers;
    for (absl::Status& result : results) {
      workers.emplace_back([&] { result = WritePieces(file, pieces, next, failed, written); });
    }
  }
  for (const absl::Status& result : results) MOE_RETURN_IF_ERROR(result);
  MOE_RETURN_IF_ERROR(file.Extend(bytes));
  return file.Close();
}

absl::Status WriteShard(const std::filesystem::path& directory, const Shard& shard, uint64_t seed, int threads,
                        BytesWritten written) {
  std::vector<FilePiece> pieces;
  int64_t offset = std::ssize(shard.header);
  for (const PlannedTensor* tensor : shard.tensors) {
    for (int64_t begin = 0; begin < tensor->elements(); begin += kPieceElements) {
      const int64_t end = std::min(begin + kPieceElements, tensor->elements());
      const int64_t bytes = (end - begin) * tensor->element_bytes();
      pieces.push_back({offset, bytes, [=](std::byte* out) { FillValues(*tensor, seed, begin, end, out); }});
      offset += bytes;
    }
  }
  return WriteFile(directory / shard.file_name, shard.header, pieces, offset, threads, written);
}

absl::Status WriteTextFile(const std::filesystem::path& path, std::string_view text) {
  MOE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  MOE_RETURN_IF_ERROR(file.WriteAt(0, text.data(), static_cast<int64_t>(text.size())));
  return file.Close();
}

}  // namespace moestro::cli
