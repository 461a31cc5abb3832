#include "services/router/batches/record_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
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

namespace {

constexpr const char* kPartial = ".partial";
constexpr const char* kDamaged = ".damaged";
constexpr size_t kTimeDigits = 16;
constexpr size_t kDigits = 32;

// The time in a name of NewName's; 0: it is none.
uint64_t TimeIn(std::string_view name) {
  if (name.size() < kDigits) return 0;
  const std::string_view digits = name.substr(name.size() - kDigits, kTimeDigits);
  uint64_t time = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), time, 16);
  return read.ec == std::errc() && read.ptr == digits.data() + digits.size() ? time : 0;
}

absl::Status WriteFile(const std::string& path, std::string_view contents) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int error = descriptor < 0 ? errno : batch::WriteAll(descriptor, contents);
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(path, ": cannot be written: ", std::strerror(error)));
}

}  // namespace

absl::Status RecordFolder::ReadAll(
    absl::FunctionRef<absl::Status(const std::string& name, const nlohmann::ordered_json& record)> take) {
  std::error_code error;
  fs::create_directories(path_, error);
  fs::directory_iterator folder(path_, error);
  if (error) return absl::NotFoundError(absl::StrCat(path_, ": ", error.message()));
  std::set<fs::path> paths;
  for (const fs::directory_entry& entry : folder) paths.insert(entry.path());
  for (const fs::path& path : paths) {
    if (path.extension() != ".json") continue;
    const absl::Status taken = CatchExceptions([&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
      const auto record = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!record.is_object()) return absl::DataLossError("is no JSON object");
      return take(path.stem(), record);
    });
    if (taken.ok()) {
      latest_ = std::max<uint64_t>(latest_, TimeIn(path.stem().native()));
      continue;
    }
    fs::path aside = path;
    aside.replace_extension(kDamaged);
    fs::rename(path, aside, error);
    LogError("{}: {}; it is now {}", path.string(), std::string(taken.message()), aside.filename().string());
  }
  for (const fs::path& path : paths) {
    if (!IsLeft(path)) continue;
    fs::remove(path, error);
    LogWarning("{}: is left of a process that was killed; {}", path.string(),
               error ? "it cannot be removed: " + error.message() : "removed");
  }
  return absl::OkStatus();
}

bool RecordFolder::IsLeft(const fs::path& path) const {
  if (path.extension() == kPartial) return true;
  if (path.extension() != data_) return false;
  std::error_code error;
  return std::ranges::none_of(std::array{".json", kDamaged}, [&](const char* extension) {
    return fs::exists(fs::path(path).replace_extension(extension), error);
  });
}

std::string RecordFolder::NewName(const std::string& prefix, absl::Time now, uint64_t random) {
  uint64_t latest = latest_;
  uint64_t time = 0;
  do {
    time = std::max(static_cast<uint64_t>(absl::ToUnixNanos(now)), latest + 1);
  } while (!latest_.compare_exchange_weak(latest, time));
  return absl::StrFormat("%s%016x%016x", prefix, time, random);
}

absl::Status RecordFolder::Write(const std::string& name, const nlohmann::ordered_json& record) {
  const std::string path = FileOf(name);
  const std::string temporary = path + kPartial;
  MOE_RETURN_IF_ERROR(
      WriteFile(temporary, record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
  int error = std::rename(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  if (error == 0) error = batch::SyncFolderOf(path);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(path, ": cannot be written: ", std::strerror(error)));
}

absl::Status RecordFolder::WriteData(const std::string& name, std::string_view contents) {
  return WriteFile(DataOf(name), contents);
}

void RecordFolder::Remove(const std::string& name) {
  ::unlink(FileOf(name).c_str());
  ::unlink(DataOf(name).c_str());
}

}  // namespace moestro::router
