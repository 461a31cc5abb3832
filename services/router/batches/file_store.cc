#include "services/router/batches/file_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/batch/file_io.h"
#include "common/text/json/quoted.h"

namespace moestro::router {
namespace {

using Json = nlohmann::ordered_json;

StoredFile FromJson(const std::string& id, const Json& json) {
  return {.id = id,
          .tenant = json.value("tenant", ""),
          .name = json.value("filename", ""),
          .purpose = json.value("purpose", ""),
          .bytes = json.value("bytes", uint64_t{0}),
          .created_at = json.value("created_at", int64_t{0})};
}

absl::Status NoFile(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no file ", text::Quoted(id)));
}

}  // namespace

Json StoredFile::ToJson() const {
  return {{"id", id},
          {"object", "file"},
          {"bytes", bytes},
          {"created_at", created_at},
          {"expires_at", nullptr},
          {"filename", name},
          {"purpose", purpose},
          {"status", "processed"}};
}

FileStore::FileStore(const std::string& folder, const FileLimits& limits, Random random)
    : limits_(limits), random_(std::move(random)), records_(folder) {}

absl::Status FileStore::Load() {
  MutexLock lock(mutex_);
  return records_.ReadAll([this](const std::string& id, const Json& record) {
    mutex_.AssertHeld();
    files_[id] = FromJson(id, record);
    return absl::OkStatus();
  });
}

std::string FileStore::NewId() const { return NewRecordId("file-", random_()); }

absl::Status FileStore::KeepLocked(const StoredFile& file) {
  Json record = file.ToJson();
  record["tenant"] = file.tenant;
  MOE_RETURN_IF_ERROR(records_.Write(file.id, record));
  files_[file.id] = file;
  return absl::OkStatus();
}

absl::Status FileStore::CheckLocked(const std::string& tenant, size_t files, uint64_t bytes) const {
  for (const auto& [id, file] : files_) {
    if (file.tenant != tenant) continue;
    ++files;
    bytes += file.bytes;
  }
  if (files <= limits_.files && bytes <= limits_.bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("file: more than ", limits_.files, " files or ", limits_.bytes,
                                                    " bytes of this key; delete some (DELETE /v1/files/{id})"));
}

absl::Status FileStore::CheckRoom(const std::string& tenant) const {
  MutexLock lock(mutex_);
  return CheckLocked(tenant, 0, 0);
}

absl::StatusOr<StoredFile> FileStore::Add(const std::string& tenant, const std::string& name,
                                          std::string_view contents) {
  const StoredFile file{.id = NewId(),
                        .tenant = tenant,
                        .name = name,
                        .purpose = "batch",
                        .bytes = contents.size(),
                        .created_at = static_cast<int64_t>(std::time(nullptr))};
  MutexLock lock(mutex_);
  MOE_RETURN_IF_ERROR(CheckLocked(tenant, 1, contents.size()));
  const std::string path = PathOf(file.id);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int error = descriptor < 0 ? errno : batch::WriteAll(descriptor, contents);
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  if (descriptor >= 0) ::close(descriptor);
  const absl::Status kept =
      error == 0 ? KeepLocked(file)
                 : absl::ResourceExhaustedError(absl::StrCat("the file cannot be kept: ", std::strerror(error)));
  if (kept.ok()) return file;
  ::unlink(path.c_str());
  return kept;
}

absl::Status FileStore::Adopt(const std::string& id, const std::string& tenant, const std::string& name) {
  MutexLock lock(mutex_);
  if (files_.contains(id)) return absl::OkStatus();
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(PathOf(id), error);
  if (error) return absl::InternalError(absl::StrCat(PathOf(id), ": ", error.message()));
  return KeepLocked({.id = id,
                     .tenant = tenant,
                     .name = name,
                     .purpose = "batch_output",
                     .bytes = bytes,
                     .created_at = static_cast<int64_t>(std::time(nullptr))});
}

absl::StatusOr<StoredFile> FileStore::Find(const std::string& tenant, const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.tenant != tenant) return NoFile(id);
  return found->second;
}

absl::Status FileStore::Remove(const std::string& tenant, const std::string& id) {
  MutexLock lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.tenant != tenant) return NoFile(id);
  records_.Remove(id);
  ::unlink(PathOf(id).c_str());
  files_.erase(found);
  return absl::OkStatus();
}

std::vector<StoredFile> FileStore::List(const std::string& tenant) const {
  std::vector<StoredFile> files;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, file] : files_) {
      if (file.tenant == tenant) files.push_back(file);
    }
  }
  std::ranges::reverse(files);
  return files;
}

uint64_t FileStore::bytes() const {
  MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [id, file] : files_) bytes += file.bytes;
  return bytes;
}

}  // namespace moestro::router
