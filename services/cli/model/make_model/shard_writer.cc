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

// One unit of work. Large enough to amortise a system call, small enough for the second-level cache to feed it.
constexpr int64_t kPieceElements = 1 << 20;

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

struct TensorPiece {
  const PlannedTensor* tensor;
  int64_t begin;  // elements
  int64_t end;
  int64_t offset;  // in the file, bytes
};

std::vector<TensorPiece> CutIntoPieces(const Shard& shard) {
  std::vector<TensorPiece> pieces;
  int64_t offset = static_cast<int64_t>(shard.header.size());
  for (const PlannedTensor* tensor : shard.tensors) {
    const int64_t elements = tensor->elements();
    for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
      const int64_t end = std::min(begin + kPieceElements, elements);
      pieces.push_back({tensor, begin, end, offset});
      offset += (end - begin) * tensor->element_bytes();
    }
  }
  return pieces;
}

// Takes pieces until none is left or a thread has failed.
absl::Status WritePieces(const OutputFile& file, const std::vector<TensorPiece>& pieces, uint64_t seed,
                         std::atomic<size_t>& next, std::atomic<bool>& failed, BytesWritten written) {
  std::vector<std::byte> buffer;
  for (size_t i = next++; i < pieces.size() && !failed; i = next++) {
    const TensorPiece& piece = pieces[i];
    const int64_t size = (piece.end - piece.begin) * piece.tensor->element_bytes();
    if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
    FillValues(*piece.tensor, seed, piece.begin, piece.end, buffer.data());
    if (absl::Status status = file.WriteAt(piece.offset, buffer.data(), size); !status.ok()) {
      failed = true;
      return status;
    }
    written(size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteShard(const std::filesystem::path& directory, const Shard& shard, uint64_t seed, int threads,
                        BytesWritten written) {
  MOE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(directory / shard.file_name));
  MOE_RETURN_IF_ERROR(file.WriteAt(0, shard.header.data(), static_cast<int64_t>(shard.header.size())));
  const std::vector<TensorPiece> pieces = CutIntoPieces(shard);
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::vector<absl::Status> results(threads);
  {
    std::vector<std::jthread> workers;
    for (absl::Status& result : results) {
      workers.emplace_back([&] { result = WritePieces(file, pieces, seed, next, failed, written); });
    }
  }
  for (const absl::Status& result : results) MOE_RETURN_IF_ERROR(result);
  return file.Close();
}

absl::Status WriteTextFile(const std::filesystem::path& path, std::string_view text) {
  MOE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  MOE_RETURN_IF_ERROR(file.WriteAt(0, text.data(), static_cast<int64_t>(text.size())));
  return file.Close();
}

}  // namespace moestro::cli
