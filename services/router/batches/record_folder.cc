#include "services/router/batches/record_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exceptions.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/batch/file_io.h"
#include "common/telemetry/log.h"

namespace moestro::router {

namespace fs = std::filesystem;

std::string NewRecordId(const std::string& prefix, uint64_t random) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return absl::StrFormat("%s%016x%016x", prefix, std::chrono::nanoseconds(now).count(), random);
}

absl::Status RecordFolder::ReadAll(
    absl::FunctionRef<absl::Status(const std::string& name, const nlohmann::ordered_json& record)> take) {
  std::error_code error;
  fs::create_directories(path_, error);
  fs::directory_iterator folder(path_, error);
  if (error) return absl::NotFoundError(absl::StrCat(path_, ": ", error.message()));
  std::set<fs::path> paths;
  for (const fs::directory_entry& entry : folder) {
    if (entry.path().extension() == ".json") paths.insert(entry.path());
  }
  for (const fs::path& path : paths) {
    const absl::Status taken = CatchExceptions([&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
      const auto record = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!record.is_object()) return absl::DataLossError("is no JSON object");
      return take(path.stem(), record);
    });
    if (taken.ok()) continue;
    fs::path aside = path;
    aside.replace_extension(".damaged");
    fs::rename(path, aside, error);
    LogError("{}: {}; it is now {}", path.string(), std::string(taken.message()), aside.filename().string());
  }
  return absl::OkStatus();
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
