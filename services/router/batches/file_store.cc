#include "services/router/batches/file_store.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/text/json/quoted.h"

namespace moestro::router {
namespace {

using OrderedJson = nlohmann::ordered_json;

StoredFile FromJson(const std::string& id, const OrderedJson& json) {
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

OrderedJson StoredFile::ToJson() const {
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
    : limits_(limits), random_(std::move(random)), records_(folder, ".jsonl") {}

absl::Status FileStore::Load() {
  MutexLock lock(mutex_);
  return records_.ReadAll([this](const std::string& id, const OrderedJson& record) {
    mutex_.AssertHeld();
    files_[id] = FromJson(id, record);
    return absl::OkStatus();
  });
}

std::string FileStore::NewId() { return records_.NewName("file-", absl::Now(), random_()); }

absl::Status FileStore::WriteRecord(const StoredFile& file) {
  OrderedJson record = file.ToJson();
  record["tenant"] = file.tenant;
  return records_.Write(file.id, record);
}

absl::Status FileStore::CheckLocked(const std::string& tenant, size_t files, uint64_t bytes) const {
  for (const auto* those : {&files_, &arriving_}) {
    for (const auto& [id, file] : *those) {
      if (file.tenant != tenant) continue;
      ++files;
      bytes += file.bytes;
    }
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
  {
    MutexLock lock(mutex_);
    MOE_RETURN_IF_ERROR(CheckLocked(tenant, 1, contents.size()));
    arriving_[file.id] = file;
  }
  const absl::Status written = CatchExceptions([&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(records_.WriteData(file.id, contents));
    return WriteRecord(file);
  });
  if (!written.ok()) records_.Remove(file.id);
  MutexLock lock(mutex_);
  auto arrived = arriving_.extract(file.id);
  MOE_RETURN_IF_ERROR(written);
  files_.insert(std::move(arrived));
  return file;
}

absl::Status FileStore::Adopt(const std::string& id, const std::string& tenant, const std::string& name) {
  {
    MutexLock lock(mutex_);
    if (files_.contains(id)) return absl::OkStatus();
  }
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(PathOf(id), error);
  if (error) return absl::InternalError(absl::StrCat(PathOf(id), ": ", error.message()));
  const StoredFile file{.id = id,
                        .tenant = tenant,
                        .name = name,
                        .purpose = "batch_output",
                        .bytes = bytes,
                        .created_at = static_cast<int64_t>(std::time(nullptr))};
  MOE_RETURN_IF_ERROR(WriteRecord(file));
  MutexLock lock(mutex_);
  files_[id] = file;
  return absl::OkStatus();
}

absl::StatusOr<StoredFile> FileStore::Find(const std::string& tenant, const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.tenant != tenant) return NoFile(id);
  return found->second;
}

absl::Status FileStore::Remove(const std::string& tenant, const std::string& id) {
  {
    MutexLock lock(mutex_);
    const auto found = files_.find(id);
    if (found == files_.end() || found->second.tenant != tenant) return NoFile(id);
    files_.erase(found);
  }
  records_.Remove(id);
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
