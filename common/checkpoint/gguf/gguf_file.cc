#include "common/checkpoint/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/gguf/gguf_header.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".gguf";
constexpr char kSplitNumber[] = "split.no";
constexpr char kSplitCount[] = "split.count";
constexpr char kSplitTensors[] = "split.tensors.count";

bool IsGgufName(std::string_view path) {
  return absl::EndsWithIgnoreCase(absl::string_view(path.data(), path.size()), kExtension.data());
}

// What "<prefix>-00002-of-00003.gguf" says.
struct SplitName {
  std::string prefix;
  std::string extension;
  int number = 1;  // from 1
  int count = 1;

  std::string Path(int other) const { return absl::StrFormat("%s-%05d-of-%05d%s", prefix, other, count, extension); }
};
std::optional<SplitName> ParseSplitName(const std::string& path) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kSuffix = 1 + kDigits + kOf.size() + kDigits;
  if (!IsGgufName(path) || path.size() < kSuffix + kExtension.size()) return std::nullopt;
  const size_t at = path.size() - kExtension.size() - kSuffix;
  const std::string number = path.substr(at + 1, kDigits), count = path.substr(at + kSuffix - kDigits, kDigits);
  if (path[at] != '-' || path.substr(at + 1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto digits = [](const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; };
  SplitName name{path.substr(0, at), path.substr(path.size() - kExtension.size())};
  if (!digits(number) || !digits(count)) return std::nullopt;
  if (!absl::SimpleAtoi(number, &name.number) || !absl::SimpleAtoi(count, &name.count)) return std::nullopt;
  return name;
}

// Appends the files to open, one for each model.
absl::Status ListModels(const fs::path& directory, std::vector<std::string>* models,
                        std::vector<fs::path>* directories) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    std::error_code none;
    if (directories != nullptr && fs::is_directory(entry->path(), none)) directories->push_back(entry->path());
    if (!IsGgufName(path) || entry->path().filename().string().find("mmproj") != std::string::npos) continue;
    const std::optional<SplitName> split = ParseSplitName(path);
    if (!split || split->number == 1) models->push_back(path);
  }
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat(text::Printable(directory.string()), ": cannot read the directory"));
}

struct Opened {
  TensorFile file;
  GgufMetadata metadata;
};
absl::StatusOr<Opened> OpenOne(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(ReadOnlyFile file, ReadOnlyFile::Open(path));
  MOE_ASSIGN_OR_RETURN(GgufHeader header, ReadGgufHeader(file));
  std::ranges::sort(header.tensors, {}, &TensorInfo::file_offset);
  return Opened{TensorFile(std::move(file), std::move(header.tensors), std::move(header.hash)),
                std::move(header.metadata)};
}

// The number of files of the set, 1 without one. `number`: what this one must be, from 1.
absl::StatusOr<int64_t> CheckSplit(const GgufMetadata& metadata, int number) {
  if (!metadata.Has(kSplitCount)) return 1;
  MOE_ASSIGN_OR_RETURN(const int64_t count, metadata.Integer(kSplitCount, 0, kMaxGgufSplits));
  if (count <= 1) return 1;
  MOE_ASSIGN_OR_RETURN(const int64_t at, metadata.Integer(kSplitNumber, 0, count - 1));
  if (at != number - 1) {
    return metadata.Wrong(kSplitNumber, absl::StrCat(at, ", not ", number - 1, ": file ", at + 1, " of a set of ",
                                                     count, " in the place of file ", number,
                                                     "; name the first one, and keep the names of all"));
  }
  return count;
}

absl::Status AppendSplits(const std::string& path, int64_t count, GgufModel* model) {
  const std::optional<SplitName> name = ParseSplitName(path);
  if (!name || name->number != 1 || name->count != count) {
    return model->metadata.Wrong(
        kSplitCount, absl::StrCat(count, " files, so this one's name must end in ",
                                  absl::StrFormat("-00001-of-%05d.gguf", count), ", and those of the others alike"));
  }
  for (int i = 2; i <= count; ++i) {
    MOE_ASSIGN_OR_RETURN(Opened next, OpenOne(name->Path(i)));
    MOE_ASSIGN_OR_RETURN(const int64_t its_count, CheckSplit(next.metadata, i));
    if (its_count != count) {
      return next.metadata.Wrong(kSplitCount, absl::StrCat(its_count, ", but the first file says ", count));
    }
    model->files.push_back(std::move(next.file));
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const GgufModel& model) {
  absl::flat_hash_map<std::string_view, const TensorFile*> seen;
  for (const TensorFile& file : model.files) {
    for (const TensorInfo& tensor : file.tensors()) {
      const auto [entry, inserted] = seen.emplace(tensor.name, &file);
      if (inserted) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": tensor ", text::Quoted(tensor.name), " is also in ", entry->second->path()));
    }
  }
  if (model.files.size() == 1 || !model.metadata.Has(kSplitTensors)) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(const int64_t expected,
                       model.metadata.Integer(kSplitTensors, 0, std::numeric_limits<int32_t>::max()));
  if (expected == static_cast<int64_t>(seen.size())) return absl::OkStatus();
  return model.metadata.Wrong(
      kSplitTensors, absl::StrCat(expected, ", but the files have ", seen.size(), " together; download them again"));
}

}  // namespace

bool IsGguf(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return false;
  if (IsGgufName(path)) return true;
  const absl::StatusOr<ReadOnlyFile> file = ReadOnlyFile::Open(path);
  std::array<char, kGgufMagic.size()> first;
  return file.ok() && file->ReadAt(0, first.data(), first.size()).ok() &&
         std::string_view(first.data(), first.size()) == kGgufMagic;
}

std::string GgufModelName(const std::string& path) {
  const std::optional<SplitName> split = ParseSplitName(path);
  return split ? fs::path(split->prefix).filename().string() : fs::path(path).stem().string();
}

absl::StatusOr<std::string> FindGguf(const std::string& directory) {
  constexpr size_t kListed = 10;
  std::vector<std::string> models;
  std::vector<fs::path> directories;
  MOE_RETURN_IF_ERROR(ListModels(directory, &models, &directories));
  for (const fs::path& below : directories) MOE_RETURN_IF_ERROR(ListModels(below, &models, nullptr));
  std::ranges::sort(models);
  const std::string label = text::Printable(directory);
  if (models.empty()) return absl::NotFoundError(absl::StrCat(label, ": no GGUF file"));
  if (models.size() == 1) return models.front();
  std::vector<std::string> names;
  for (const std::string& model : models) {
    if (names.size() == kListed) break;
    names.push_back(text::Printable(fs::path(model).lexically_relative(directory).string()));
  }
  return absl::InvalidArgumentError(absl::StrCat(label, ": ", models.size(), " GGUF models, name the file of one: ",
                                                 absl::StrJoin(names, ", "), models.size() > kListed ? ", ..." : ""));
}

absl::StatusOr<GgufModel> OpenGguf(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(Opened first, OpenOne(path));
  GgufModel model{std::move(first.metadata), {}};
  model.files.push_back(std::move(first.file));
  MOE_ASSIGN_OR_RETURN(const int64_t count, CheckSplit(model.metadata, 1));
  if (count > 1) MOE_RETURN_IF_ERROR(AppendSplits(path, count, &model));
  MOE_RETURN_IF_ERROR(CheckTensors(model));
  return model;
}

}  // namespace moestro::checkpoint
