#include "services/cli/model/make_model/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

absl::Status Failed(const std::string& what, const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path.string(), ": ", error.message()));
}

// Makes the path absolute, resolves links and removes a trailing slash, so that siblings of it can be named.
absl::StatusOr<fs::path> Normalise(const fs::path& target) {
  if (target.empty()) return absl::InvalidArgumentError("--out is empty; name the directory to write");
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(target), error);
  if (error) return Failed("resolve", target, error);
  if (path.filename().empty()) path = path.parent_path();
  if (path == path.root_path()) return absl::InvalidArgumentError("--out is the root directory");
  return path;
}

absl::Status CheckReplaceable(const fs::path& target, bool force) {
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (error) return Failed("read", target, error);
  if (!fs::is_directory(status)) {
    return absl::AlreadyExistsError(absl::StrCat(target.string(), " is not a directory; choose another --out"));
  }
  const bool empty = fs::is_empty(target, error);
  if (error) return Failed("read", target, error);
  if (empty) return absl::OkStatus();
  if (!force) {
    return absl::AlreadyExistsError(
        absl::StrCat(target.string(), " is not empty; pass --force to replace it, or choose another --out"));
  }
  if (!fs::exists(target / "config.json", error)) {
    return absl::FailedPreconditionError(absl::StrCat(
        target.string(), " holds no config.json, so it is not a checkpoint and --force does not remove it"));
  }
  return absl::OkStatus();
}

absl::Status CheckReplaceableFile(const fs::path& target, bool force) {
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (error) return Failed("read", target, error);
  if (!fs::is_regular_file(status)) {
    return absl::AlreadyExistsError(absl::StrCat(target.string(), " is not a file; choose another --out"));
  }
  if (!force) {
    return absl::AlreadyExistsError(
        absl::StrCat(target.string(), " exists; pass --force to replace it, or choose another --out"));
  }
  char magic[4] = {};
  if (std::ifstream(target, std::ios::binary).read(magic, sizeof magic) && std::string_view(magic, 4) == "GGUF") {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(target.string(), " does not begin with GGUF, so --force does not replace it"));
}

// The lock lasts as long as the returned descriptor: a killed run releases it.
absl::StatusOr<int> LockDirectory(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("open", path, std::error_code(errno, std::generic_category()));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return absl::FailedPreconditionError(absl::StrCat("another run is writing ", path.string(), "; wait for it"));
  }
  return fd;
}

absl::Status RemoveContents(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code remove_error;
    fs::remove_all(it->path(), remove_error);
    if (remove_error) return Failed("remove", it->path(), remove_error);
  }
  return error ? Failed("read", directory, error) : absl::OkStatus();
}

}  // namespace

absl::Status CheckFreeSpace(const fs::path& directory, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error) return Failed("read the free space of", directory, error);
  if (space.available >= static_cast<uint64_t>(bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the checkpoint needs ", bytes, " bytes, but the file system of ", directory.string(), " has ",
                   space.available, " free; use fewer --layers, --experts or --vocab-rows, or another --out"));
}

absl::StatusOr<OutputDirectory> OutputDirectory::Open(const fs::path& target, bool force, int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(fs::path place, Normalise(target));
  MOE_RETURN_IF_ERROR(CheckReplaceable(place, force));
  return Create(std::move(place), bytes);
}

absl::StatusOr<OutputDirectory> OutputDirectory::OpenFile(const fs::path& target, bool force, int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(fs::path place, Normalise(target));
  MOE_RETURN_IF_ERROR(CheckReplaceableFile(place, force));
  MOE_ASSIGN_OR_RETURN(OutputDirectory directory, Create(std::move(place), bytes));
  directory.one_file_ = true;
  return directory;
}

absl::StatusOr<OutputDirectory> OutputDirectory::Create(fs::path place, int64_t bytes) {
  std::error_code error;
  fs::create_directories(place.parent_path(), error);
  if (error) return Failed("create", place.parent_path(), error);

  fs::path partial = place;
  partial += ".partial";
  fs::create_directory(partial, error);
  if (error) return Failed("create", partial, error);
  MOE_ASSIGN_OR_RETURN(const int lock_fd, LockDirectory(partial));
  OutputDirectory directory(std::move(place), std::move(partial), lock_fd);
  MOE_RETURN_IF_ERROR(RemoveContents(directory.partial_));
  MOE_RETURN_IF_ERROR(CheckFreeSpace(directory.partial_, bytes));
  return directory;
}

OutputDirectory::OutputDirectory(fs::path target, fs::path partial, int lock_fd)
    : target_(std::move(target)), partial_(std::move(partial)), lock_fd_(lock_fd) {}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : target_(std::move(other.target_)),
      partial_(std::move(other.partial_)),
      one_file_(other.one_file_),
      lock_fd_(std::exchange(other.lock_fd_, -1)) {}

OutputDirectory::~OutputDirectory() {
  if (lock_fd_ < 0) return;
  std::error_code ignored;  // a failing clean-up must not hide the original error
  fs::remove_all(partial_, ignored);
  ::close(lock_fd_);
}

absl::Status OutputDirectory::Commit() {
  std::error_code error;
  if (one_file_) {
    fs::rename(file(), target_, error);
    if (error) return Failed("create", target_, error);
    fs::remove_all(partial_, error);
    if (error) return Failed("remove", partial_, error);
    ::close(std::exchange(lock_fd_, -1));
    return absl::OkStatus();
  }
  const bool replace = fs::exists(target_ / "config.json", error);
  // A swap: at every moment one complete checkpoint is in place.
  if (replace) {
    if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
      return Failed("replace", target_, std::error_code(errno, std::generic_category()));
    }
    fs::remove_all(partial_, error);
    if (error) return Failed("remove the replaced checkpoint", partial_, error);
  } else {
    fs::rename(partial_, target_, error);
    if (error) return Failed("create", target_, error);
  }
  ::close(std::exchange(lock_fd_, -1));
  return absl::OkStatus();
}

}  // namespace moestro::cli
