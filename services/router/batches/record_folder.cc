#include "services/router/batches/record_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/batch/file_io.h"

namespace moestro::router {

namespace fs = std::filesystem;

std::string NewRecordId(const std::string& prefix, uint64_t random) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return absl::StrFormat("%s%016x%016x", prefix, std::chrono::nanoseconds(now).count(), random);
}

absl::StatusOr<std::map<std::string, nlohmann::ordered_json>> RecordFolder::ReadAll() {
  std::error_code error;
  fs::create_directories(path_, error);
  fs::directory_iterator folder(path_, error);
  if (error) return absl::NotFoundError(absl::StrCat(path_, ": ", error.message()));
  std::map<std::string, nlohmann::ordered_json> records;
  for (const fs::directory_entry& entry : folder) {
    if (entry.path().extension() != ".json") continue;
    MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(entry.path()));
    auto record = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) {
      return absl::DataLossError(absl::StrCat(entry.path().string(), ": is no JSON object; remove it"));
    }
    records.emplace(entry.path().stem(), std::move(record));
  }
  return records;
}

absl::Status RecordFolder::Write(const std::string& name, const nlohmann::ordered_json& record) {
  const std::string path = FileOf(name);
  const std::string temporary = path + ".partial";
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int error = descriptor < 0 ? errno : 0;
  if (error == 0) {
    error = batch::WriteAll(descriptor,
                            record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) error = batch::SyncFolderOf(path);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(path, ": cannot be written: ", std::strerror(error)));
}

void RecordFolder::Remove(const std::string& name) { ::unlink(FileOf(name).c_str()); }

}  // namespace moestro::router
