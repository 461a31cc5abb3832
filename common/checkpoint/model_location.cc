#include "common/checkpoint/model_location.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/gguf/gguf_file.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "config.json";
constexpr std::string_view kRepositoryPrefix = "models--";
constexpr int64_t kMaxRefBytes = 256;  // a commit's 40 digits and a newline

// Null if it is not set or empty.
const char* Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// As the tools expand a leading "~".
fs::path Expanded(const std::string& path) {
  const char* const home = Environment("HOME");
  if (home == nullptr || !(path == "~" || path.starts_with("~/"))) return path;
  return fs::path(home + path.substr(1));
}

fs::path CacheDirectory() {
  if (const char* const cache = Environment("HF_HUB_CACHE")) return Expanded(cache);
  if (const char* const home = Environment("HF_HOME")) return Expanded(home) / "hub";
  const char* const xdg = Environment("XDG_CACHE_HOME");
  return Expanded(xdg == nullptr ? "~/.cache" : xdg) / "huggingface" / "hub";
}

bool IsDirectory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// "models--org--name" is "org/name"; empty for other names.
std::string RepositoryOf(const std::string& directory) {
  if (!directory.starts_with(kRepositoryPrefix)) return "";
  return absl::StrReplaceAll(directory.substr(kRepositoryPrefix.size()), {{"--", "/"}});
}

// A link in a cache keeps its name: the file behind it has another, and files of a set are found by name.
absl::StatusOr<ModelLocation> FoundGguf(const fs::path& file) {
  std::error_code error;
  const fs::path directory = fs::canonical(file.has_parent_path() ? file.parent_path() : ".", error);
  if (error) return absl::ErrnoToStatus(error.value(), text::Printable(file.string()));
  const std::string path = (directory / file.filename()).string();
  return ModelLocation{path, GgufModelName(path)};
}

absl::StatusOr<ModelLocation> Found(const fs::path& directory) {
  std::error_code error;
  const fs::path config = directory / kConfig;
  if (fs::is_symlink(config, error) && !fs::exists(config, error)) {
    return absl::InvalidArgumentError(absl::StrCat(text::Printable(config.string()),
                                                   ": a link that leads nowhere; make the directory ",
                                                   "above snapshots/ available, which holds blobs/, too"));
  }
  const fs::path absolute = fs::canonical(directory, error);
  if (error) return absl::ErrnoToStatus(error.value(), text::Printable(directory.string()));
  std::string name;
  if (absolute.parent_path().filename() == "snapshots") {
    name = RepositoryOf(absolute.parent_path().parent_path().filename().string());
  }
  if (fs::exists(config, error)) {
    return ModelLocation{absolute.string(), name.empty() ? absolute.filename().string() : name};
  }
  const absl::StatusOr<std::string> gguf = FindGguf(directory.string());
  if (absl::IsNotFound(gguf.status())) {
    return absl::NotFoundError(
        absl::StrCat(text::Printable(directory.string()), ": it has no config.json; use the directory that holds it"));
  }
  MOE_RETURN_IF_ERROR(gguf);
  MOE_ASSIGN_OR_RETURN(ModelLocation location, FoundGguf(*gguf));
  if (!name.empty()) location.name = name;
  return location;
}

// Of a repository's directory in the cache.
absl::StatusOr<fs::path> Snapshot(const fs::path& repository) {
  const std::string label = text::Printable(repository.string());
  const fs::path ref = repository / "refs" / "main";
  absl::StatusOr<std::string> commit = ReadWholeFile(ref.string(), kMaxRefBytes);
  if (commit.ok()) {
    const std::string name(absl::StripAsciiWhitespace(*commit));
    const bool plain = !name.empty() && std::ranges::all_of(name, absl::ascii_isalnum);
    if (plain && IsDirectory(repository / "snapshots" / name)) return repository / "snapshots" / name;
    return absl::InvalidArgumentError(absl::StrCat(label, ": refs/main names ", text::Quoted(name),
                                                   ", which is no snapshot; download the model again"));
  }
  if (!absl::IsNotFound(commit.status())) return commit.status();
  std::vector<fs::path> snapshots;
  std::error_code error;
  for (fs::directory_iterator entry(repository / "snapshots", error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsDirectory(entry->path())) snapshots.push_back(entry->path());
  }
  if (snapshots.size() == 1) return snapshots.front();
  if (snapshots.empty()) return absl::NotFoundError(absl::StrCat(label, ": it has no snapshot"));
  return absl::InvalidArgumentError(
      absl::StrCat(label, ": ", snapshots.size(), " snapshots and no refs/main; use the directory of one of them"));
}

// One pattern for each option: versions of the tool differ in how they take several. The first matches safetensors,
// json, jinja, model, txt and tiktoken files. Repositories of GGUF have a model in many types, of which one will do.
std::string DownloadCommand(const std::string& name) {
  if (absl::EndsWithIgnoreCase(name, "gguf")) return absl::StrCat("hf download ", name, " --include '*Q4_K_M*'");
  return absl::StrCat("hf download ", name, " --include '*.[jmst]*' --exclude '*consolidated*'");
}

}  // namespace

bool IsRepositoryName(std::string_view model) {
  const size_t slash = model.find('/');
  if (slash == std::string_view::npos) return false;
  const auto valid = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.front() != '-' && part.find("--") == std::string_view::npos &&
           std::ranges::all_of(part, [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; });
  };
  return valid(model.substr(0, slash)) && valid(model.substr(slash + 1));
}

absl::StatusOr<ModelLocation> LocateModel(const std::string& model) {
  std::error_code error;
  const fs::path path(model);
  if (IsDirectory(path)) {
    if (fs::exists(fs::symlink_status(path / kConfig, error)) || !IsDirectory(path / "snapshots")) return Found(path);
    MOE_ASSIGN_OR_RETURN(const fs::path snapshot, Snapshot(path));
    return Found(snapshot);
  }
  const std::string label = text::Printable(model);
  if (fs::exists(path, error)) {
    if (IsGguf(model)) return FoundGguf(path);
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": not a directory, nor a GGUF file; use the directory that holds config.json"));
  }
  if (!IsRepositoryName(model)) {
    return absl::NotFoundError(
        absl::StrCat(label, ": no such directory; use the one that holds config.json, or a model's org/name"));
  }
  const fs::path repository = CacheDirectory() / absl::StrCat("models--", absl::StrReplaceAll(model, {{"/", "--"}}));
  absl::StatusOr<fs::path> snapshot = IsDirectory(repository) ? Snapshot(repository) : absl::NotFoundError("");
  if (snapshot.ok()) {
    const absl::StatusOr<ModelLocation> found = Found(*snapshot);
    if (!absl::IsNotFound(found.status())) return found;
  } else if (!absl::IsNotFound(snapshot.status())) {
    return snapshot.status();
  }
  return absl::NotFoundError(absl::StrCat(label, ": not in ", text::Printable(repository.parent_path().string()),
                                          ", and no such directory; get it with: ", DownloadCommand(model)));
}

}  // namespace moestro::checkpoint
