// The files of batches on disk: what clients upload, and what batches write. Each belongs to a tenant, and no other one
// learns of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "services/router/batches/record_folder.h"

namespace moestro::router {

struct StoredFile {
  std::string id;  // "file-..."
  std::string tenant;
  std::string name;     // the client's
  std::string purpose;  // "batch" or "batch_output"
  uint64_t bytes = 0;
  int64_t created_at = 0;                 // seconds since 1970
  nlohmann::ordered_json ToJson() const;  // OpenAI's
};

// What one key may fill.
struct FileLimits {
  size_t files = 1000;
  uint64_t bytes = uint64_t{8} << 30;
};

// Thread-safe.
class FileStore {
 public:
  using Random = std::function<uint64_t()>;  // thread-safe
  FileStore(const std::string& folder, const FileLimits& limits, Random random);

  // Reads what an earlier process has left. RecordFolder::ReadAll says when to call it, and has its errors.
  absl::Status Load();

  // FAILED_PRECONDITION: the tenant has as much as it may; says what to delete. RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<StoredFile> Add(const std::string& tenant, const std::string& name, std::string_view contents);
  // FAILED_PRECONDITION: the tenant has more than it may, which only results can do; says what to delete.
  absl::Status CheckRoom(const std::string& tenant) const;
  // Takes over a file that a batch has written, under the id that it has chosen. Counts, but is never refused: its
  // batch has been computed. Doing it again changes nothing.
  absl::Status Adopt(const std::string& id, const std::string& tenant, const std::string& name);

  // NOT_FOUND: the tenant has no such file.
  absl::StatusOr<StoredFile> Find(const std::string& tenant, const std::string& id) const;
  absl::Status Remove(const std::string& tenant, const std::string& id);
  std::vector<StoredFile> List(const std::string& tenant) const;  // newest first

  std::string NewId();
  std::string PathOf(const std::string& id) const { return records_.DataOf(id); }
  uint64_t bytes() const;  // of all files

 private:
  absl::Status WriteRecord(const StoredFile& file);
  // With so many more.
  absl::Status CheckLocked(const std::string& tenant, size_t files, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FileLimits limits_;
  const Random random_;
  RecordFolder records_;
  mutable Mutex mutex_;  // of all tenants: nobody writes to the disk under it
  std::map<std::string, StoredFile> files_ ABSL_GUARDED_BY(mutex_);     // by id, so the oldest first
  std::map<std::string, StoredFile> arriving_ ABSL_GUARDED_BY(mutex_);  // by id: on their way to the disk, and counted
};

}  // namespace moestro::router
