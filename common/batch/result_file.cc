#include "common/batch/result_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/batch/file_io.h"

namespace moestro::batch {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// A file that appears when it is complete.
class WholeFile {
 public:
  explicit WholeFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  absl::Status Open() {
    descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return descriptor_ < 0 ? Cannot(errno) : absl::OkStatus();
  }
  absl::Status Add(std::string_view line) {
    (piece_ += line) += '\n';
    is_empty_ = false;
    return piece_.size() < kPieceBytes ? absl::OkStatus() : Flush();
  }
  absl::Status Finish() {
    MOE_RETURN_IF_ERROR(Flush());
    if (::fsync(descriptor_) != 0 || std::rename(partial_.c_str(), path_.c_str()) != 0) return Cannot(errno);
    const int error = SyncFolderOf(path_);
    return error == 0 ? absl::OkStatus() : Cannot(error);
  }
  void Drop() { ::unlink(partial_.c_str()); }
  bool is_empty() const { return is_empty_; }

 private:
  absl::Status Flush() {
    const int error = WriteAll(descriptor_, piece_);
    piece_.clear();
    return error == 0 ? absl::OkStatus() : Cannot(error);
  }
  absl::Status Cannot(int error_number) const {
    return absl::ResourceExhaustedError(absl::StrCat(path_, ": cannot be written: ", std::strerror(error_number)));
  }

  const std::string path_;
  const std::string partial_;
  int descriptor_ = -1;
  std::string piece_;
  bool is_empty_ = true;
};

}  // namespace

absl::Status WriteResults(const RequestFile& file, const Journal& journal, const ResultPaths& paths) {
  WholeFile output(paths.output);
  WholeFile errors(paths.errors);
  const bool apart = !paths.errors.empty();
  MOE_RETURN_IF_ERROR(output.Open());
  if (apart) MOE_RETURN_IF_ERROR(errors.Open());
  for (size_t index = 0; index < file.size(); ++index) {
    if (!journal.Has(index)) continue;
    MOE_ASSIGN_OR_RETURN(const std::string line, journal.Read(index));
    MOE_RETURN_IF_ERROR((apart && !journal.Succeeded(index) ? errors : output).Add(line));
  }
  if (apart && !errors.is_empty()) MOE_RETURN_IF_ERROR(errors.Finish());
  if (apart && errors.is_empty()) errors.Drop();
  return output.Finish();
}

}  // namespace moestro::batch
