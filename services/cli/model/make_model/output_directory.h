// All-or-nothing output: a checkpoint is written beside its target and moved there when it is complete.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro::cli {

// RESOURCE_EXHAUSTED if the file system of `directory` (which must exist) cannot take `bytes` more.
absl::Status CheckFreeSpace(const std::filesystem::path& directory, int64_t bytes);

class OutputDirectory {
 public:
  // Checks that `target` may be written and that `bytes` of space are free. Creates an empty "<target>.partial", locked
  // against other runs, and removes what a killed run left there. Errors: see MakeModel.
  static absl::StatusOr<OutputDirectory> Open(const std::filesystem::path& target, bool force, int64_t bytes);
  // The same of a target that is one GGUF file.
  static absl::StatusOr<OutputDirectory> OpenFile(const std::filesystem::path& target, bool force, int64_t bytes);
  // Removes the partial directory unless Commit succeeded.
  ~OutputDirectory();
  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;

  // The directory to write to.
  const std::filesystem::path& path() const { return partial_; }
  // The file to write, of OpenFile.
  std::filesystem::path file() const { return partial_ / target_.filename(); }
  // Moves the written files to `target`. A replaced checkpoint is swapped out in one step and removed.
  absl::Status Commit();

 private:
  OutputDirectory(std::filesystem::path target, std::filesystem::path partial, int lock_fd);

  static absl::StatusOr<OutputDirectory> Create(std::filesystem::path place, int64_t bytes);

  std::filesystem::path target_;
  std::filesystem::path partial_;
  bool one_file_ = false;
  int lock_fd_ = -1;
};

}  // namespace moestro::cli
