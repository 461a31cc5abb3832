#include "common/access/keys_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/access/private_file.h"
#include "common/base/status.h"

namespace moestro::access {
namespace {

constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr size_t kMaxNameBytes = 64;
constexpr double kMaxWeight = 1000;
constexpr size_t kSecretBytes = 32;

constexpr std::array<std::pair<const char*, std::optional<int64_t> TenantLimits::*>, 7> kLimits = {{
    {"requests-per-minute", &TenantLimits::requests_per_minute},
    {"tokens-per-minute", &TenantLimits::tokens_per_minute},
    {"burst-tokens", &TenantLimits::burst_tokens},
    {"running", &TenantLimits::running},
    {"waiting", &TenantLimits::waiting},
    {"max-tokens", &TenantLimits::max_tokens},
    {"context", &TenantLimits::context},
}};

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && std::ranges::all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

absl::Status CheckName(const std::string& name) {
  if (!IsName(name)) {
    return Wrong("name '", name, "': must be 1 to ", kMaxNameBytes, " characters of A-Z a-z 0-9 - _ .");
  }
  if (name == kAnonymous || name == kOperator) return Wrong("name '", name, "': has another meaning: choose another");
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> ToTime(const toml::node& value) {
  const auto day = [](const toml::date& date) { return absl::CivilDay(date.year, date.month, date.day); };
  if (const auto* date = value.as_date()) return absl::FromCivil(day(date->get()), absl::UTCTimeZone());
  if (const auto* moment = value.as_date_time(); moment != nullptr && moment->get().offset) {
    const toml::date_time& at = moment->get();
    return absl::FromCivil(day(at.date), absl::UTCTimeZone()) + absl::Hours(at.time.hour) +
           absl::Minutes(at.time.minute - at.offset->minutes) + absl::Seconds(at.time.second);
  }
  return absl::InvalidArgumentError("must be a date such as 2027-01-01, or 2027-01-01T12:00:00Z, without quotes");
}

class EntryReader {
 public:
  explicit EntryReader(KeyEntry& entry) : entry_(entry) {}

  absl::Status Read(std::string_view setting, const toml::node& value) {
    for (const auto& [name, limit] : kLimits) {
      if (setting == name) return ReadLimit(value, entry_.limits.*limit);
    }
    if (setting == "name") return absl::OkStatus();  // read first
    if (setting == "hash") return ReadHash(value);
    if (setting == "weight") return ReadWeight(value);
    if (setting == "cache-scope") return ReadCacheScope(value);
    if (setting == "endpoints") return ReadEndpoints(value);
    if (setting == "expires") {
      MOE_ASSIGN_OR_RETURN(entry_.expires, ToTime(value));
      return absl::OkStatus();
    }
    return Wrong("is no setting of a key");
  }
  bool has_hash() const { return has_hash_; }

 private:
  absl::Status ReadHash(const toml::node& value) {
    MOE_ASSIGN_OR_RETURN(entry_.hash, ParseKeyHash(value.value_or(std::string())));
    has_hash_ = true;
    return absl::OkStatus();
  }
  absl::Status ReadWeight(const toml::node& value) {
    const double weight = value.value_or(0.0);
    if (!(weight > 0 && weight <= kMaxWeight)) return Wrong("must be a number above 0, at most ", kMaxWeight);
    entry_.weight = weight;
    return absl::OkStatus();
  }
  static absl::Status ReadLimit(const toml::node& value, std::optional<int64_t>& limit) {
    constexpr int64_t kMost = int64_t{1} << 40;
    const auto* number = value.as_integer();
    if (number == nullptr || number->get() < 1 || number->get() > kMost) {
      return Wrong("must be a whole number from 1 to ", kMost, "; leave it out for no limit");
    }
    limit = number->get();
    return absl::OkStatus();
  }
  absl::Status ReadCacheScope(const toml::node& value) {
    const std::string word = value.value_or(std::string());
    if (word != "own" && word != "shared") return Wrong("must be \"own\" or \"shared\"");
    entry_.shared_cache = word == "shared";
    return absl::OkStatus();
  }
  absl::Status ReadEndpoints(const toml::node& value) {
    const absl::Status wrong = Wrong("must be a list of generate, score, tokenize and admin, each in quotes");
    const toml::array* list = value.as_array();
    if (list == nullptr || list->empty()) return wrong;
    entry_.endpoints.fill(false);
    for (const toml::node& word : *list) {
      const std::string name = word.value_or(std::string());
      const auto* found = std::ranges::find(kEndpoints, name, EndpointName);
      if (found == kEndpoints.end()) return wrong;
      entry_.endpoints[static_cast<size_t>(*found)] = true;
    }
    return absl::OkStatus();
  }

  KeyEntry& entry_;
  bool has_hash_ = false;
};

absl::StatusOr<KeyEntry> ReadEntry(const toml::node& node) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return Wrong("key: must be a table: write [[key]]");
  KeyEntry entry;
  entry.name = (*table)["name"].value_or(std::string());
  MOE_RETURN_IF_ERROR(Annotate(CheckName(entry.name), absl::StrCat("line ", node.source().begin.line, ": key")));
  EntryReader reader(entry);
  for (const auto& [setting, value] : *table) {
    MOE_RETURN_IF_ERROR(Annotate(reader.Read(setting.str(), value),
                                 absl::StrCat("key '", entry.name, "': ", std::string(setting.str()))));
  }
  if (!reader.has_hash()) return Wrong("key '", entry.name, "': has no hash: make one by `moestro keys add`");
  return entry;
}

std::string FormatEntry(const KeyEntry& entry) {
  std::string text = absl::StrCat("[[key]]\nname = \"", entry.name, "\"\nhash = \"", ToText(entry.hash), "\"\n");
  if (entry.weight != 1) absl::StrAppend(&text, "weight = ", entry.weight, "\n");
  for (const auto& [name, limit] : kLimits) {
    if (entry.limits.*limit) absl::StrAppend(&text, name, " = ", *(entry.limits.*limit), "\n");
  }
  if (entry.shared_cache) absl::StrAppend(&text, "cache-scope = \"shared\"\n");
  if (entry.endpoints != KeyEntry().endpoints) {
    std::vector<std::string> names;
    for (const Endpoint endpoint : kEndpoints) {
      if (entry.allows(endpoint)) names.push_back(absl::StrCat("\"", EndpointName(endpoint), "\""));
    }
    absl::StrAppend(&text, "endpoints = [", absl::StrJoin(names, ", "), "]\n");
  }
  if (entry.expires != absl::InfiniteFuture()) {
    absl::StrAppend(&text, "expires = ", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", entry.expires, absl::UTCTimeZone()),
                    "\n");
  }
  return text;
}

// Writes the file beside the old one, and puts it in its place.
absl::Status Replace(const std::string& path, const std::string& text) {
  struct stat old {};
  const bool exists = ::stat(path.c_str(), &old) == 0;
  std::string temporary = path + ".XXXXXX";
  const int descriptor = mkstemp(temporary.data());  // for this user only
  if (descriptor < 0) return absl::ErrnoToStatus(errno, "cannot write beside it");
  bool written = ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (exists) {  // keeps a group that may read it
    written =
        written && fchown(descriptor, old.st_uid, old.st_gid) == 0 && fchmod(descriptor, old.st_mode & 07777) == 0;
  }
  written = written && fsync(descriptor) == 0;
  written = ::close(descriptor) == 0 && written && std::rename(temporary.c_str(), path.c_str()) == 0;
  if (written) return absl::OkStatus();
  const absl::Status error = absl::ErrnoToStatus(errno, "cannot be written");
  ::unlink(temporary.c_str());
  return error;
}

// Held by whoever changes a file of the folder: the file itself is replaced, so a lock on it would be lost.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  // Others hold it for milliseconds.
  absl::Status Take() {
    constexpr int kTries = 1000;
    constexpr absl::Duration kPause = absl::Milliseconds(10);
    if (descriptor_ < 0) return absl::ErrnoToStatus(errno, "its folder");
    for (int tries = 0; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (errno != EWOULDBLOCK && errno != EINTR) return absl::ErrnoToStatus(errno, "its folder cannot be locked");
      if (tries == kTries) return absl::UnavailableError("another process holds a lock on its folder");
      absl::SleepFor(kPause);
    }
    return absl::OkStatus();
  }

 private:
  const int descriptor_;
};

// Behind symbolic links.
std::string RealPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

absl::Status Add(const std::string& link, KeyEntry entry, std::string_view key) {
  MOE_RETURN_IF_ERROR(CheckName(entry.name));
  const std::string path = RealPath(link);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  FolderLock lock(folder.empty() ? "." : folder.string());
  MOE_RETURN_IF_ERROR(lock.Take());
  absl::StatusOr<std::string> text = ReadPrivateFile(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status()) && !std::filesystem::exists(path)) {
    MOE_ASSIGN_OR_RETURN(const std::string secret, RandomHex(kSecretBytes));
    text = absl::StrCat("# API keys of moestro-router (--keys-file). Holds hashes, not keys.\nsecret = \"", secret,
                        "\"\n");
  }
  MOE_RETURN_IF_ERROR(text);
  MOE_ASSIGN_OR_RETURN(const KeysFile file, ParseKeysFile(*text));
  if (std::ranges::find(file.keys, entry.name, &KeyEntry::name) != file.keys.end()) {
    return Wrong("has a key '", entry.name, "' already: choose another name, or remove its [[key]] first");
  }
  MOE_ASSIGN_OR_RETURN(const Salt salt, file.keys.empty() ? NewSalt() : file.keys.front().hash.salt);
  entry.hash = HashApiKey(salt, key);
  const std::string added = absl::StrCat(*text, "\n", FormatEntry(entry));
  MOE_RETURN_IF_ERROR(ParseKeysFile(added).status());
  return Replace(path, added);
}

}  // namespace

const char* EndpointName(Endpoint endpoint) {
  static constexpr std::array<const char*, kEndpoints.size()> kNames = {"generate", "score", "tokenize", "admin"};
  return kNames[static_cast<size_t>(endpoint)];
}

absl::StatusOr<KeysFile> ParseKeysFile(const std::string& text) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Wrong("line ", error.source().begin.line, ": ", std::string(error.description()));
  }
  KeysFile file;
  std::set<std::string> names;
  for (const auto& [setting, value] : table) {
    if (setting.str() == "secret") {
      file.secret = value.value_or(std::string());
      if (file.secret.size() < 2 * kSecretBytes)
        return Wrong("secret: must be a text of ", 2 * kSecretBytes, " digits");
      continue;
    }
    const toml::array* list = value.as_array();
    if (setting.str() != "key" || list == nullptr) {
      return Wrong("'", std::string(setting.str()), "': the file holds secret and [[key]] only");
    }
    if (list->size() > kMaxKeys) return Wrong("has ", list->size(), " keys, and may have ", kMaxKeys);
    for (const toml::node& node : *list) {
      MOE_ASSIGN_OR_RETURN(KeyEntry entry, ReadEntry(node));
      if (!names.insert(entry.name).second) return Wrong("key '", entry.name, "': appears twice");
      file.keys.push_back(std::move(entry));
    }
  }
  return file;
}

absl::StatusOr<KeysFile> ReadKeysFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadPrivateFile(path, kMaxFileBytes);
  MOE_RETURN_IF_ERROR(Annotate(text.status(), path));
  absl::StatusOr<KeysFile> file = ParseKeysFile(*text);
  MOE_RETURN_IF_ERROR(Annotate(file.status(), path));
  if (file->keys.empty()) return Wrong(path, ": has no [[key]], so that nobody could call: use `moestro keys add`");
  return file;
}

absl::Status AddKey(const std::string& path, KeyEntry entry, std::string_view key) {
  return Annotate(Add(path, std::move(entry), key), path);
}

}  // namespace moestro::access
