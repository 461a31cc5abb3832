#include "common/batch/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/batch/checksum.h"
#include "common/batch/file_io.h"
#include "common/batch/line_reader.h"

namespace moestro::batch {
namespace {

constexpr std::string_view kTitle = "moestro-batch-journal 1 ";
constexpr std::chrono::seconds kSyncInterval{1};
// Answers have a megabyte or so: what is longer is no result.
constexpr size_t kMaxRecordBytes = size_t{256} << 20;
constexpr size_t kChecksumDigits = 16;

std::string Title(const RequestFile& file) {
  const FileIdentity& identity = file.identity();
  const nlohmann::ordered_json json = {{"input", file.path()},
                                       {"bytes", identity.bytes},
                                       {"checksum", absl::StrFormat("%016x", identity.checksum)},
                                       {"requests", identity.requests}};
  return absl::StrCat(std::string(kTitle), json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

// What the first line says; nullopt: it says nothing that makes sense.
std::optional<FileIdentity> ParseTitle(std::string_view line) {
  if (!line.starts_with(kTitle)) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(line.substr(kTitle.size()), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  FileIdentity identity;
  const auto number = [&](const char* key, uint64_t& value) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_unsigned()) return false;
    value = found->get<uint64_t>();
    return true;
  };
  const auto checksum = json.find("checksum");
  if (checksum == json.end() || !checksum->is_string()) return std::nullopt;
  const std::string& digits = checksum->get_ref<const std::string&>();
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), identity.checksum, 16);
  if (read.ec != std::errc() || !number("bytes", identity.bytes) || !number("requests", identity.requests)) {
    return std::nullopt;
  }
  return identity;
}

struct MarkWord {
  std::string_view word;
  uint8_t Journal::Deaths::*count;
  int by;  // if the process ends now
};
constexpr MarkWord kBegun{"begun", &Journal::Deaths::beside_others, 1};
constexpr MarkWord kLeft{"left", &Journal::Deaths::beside_others, -1};
constexpr MarkWord kBegunAlone{"begun-alone", &Journal::Deaths::alone, 1};
constexpr MarkWord kLeftAlone{"left-alone", &Journal::Deaths::alone, -1};

// A disk may have lost the mark that this one ends.
void Count(const MarkWord& mark, Journal::Deaths& deaths) {
  uint8_t& count = deaths.*mark.count;
  count = static_cast<uint8_t>(std::clamp(count + mark.by, 0, UINT8_MAX));
}

std::string WithChecksum(const std::string& text) { return absl::StrFormat("%016x %s\n", Checksum(text), text); }

std::string Record(size_t index, const Result& result) {
  return WithChecksum(absl::StrCat(index, result.ok ? " ok " : " failed ", result.generated_tokens, " ", result.line));
}

struct Parsed {
  size_t index = 0;
  const MarkWord* mark = nullptr;  // null: it is a result
  bool ok = false;
  uint64_t tokens = 0;
  std::string_view line;
};

// The number that `text` begins with, and the space behind it, both taken from it.
bool TakeNumber(std::string_view& text, uint64_t& value, int base = 10) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (read.ec != std::errc() || read.ptr == text.data() + text.size() || *read.ptr != ' ') return false;
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()) + 1);
  return true;
}

// nullopt: it does not fit its checksum.
std::optional<Parsed> ParseRecord(std::string_view record) {
  uint64_t checksum = 0;
  if (record.size() < kChecksumDigits || !TakeNumber(record, checksum, 16) || Checksum(record) != checksum) {
    return std::nullopt;
  }
  Parsed parsed;
  if (!TakeNumber(record, parsed.index)) return std::nullopt;
  for (const MarkWord* mark : {&kBegun, &kLeft, &kBegunAlone, &kLeftAlone}) {
    if (record == mark->word) parsed.mark = mark;
  }
  if (parsed.mark != nullptr) return parsed;
  parsed.ok = record.starts_with("ok ");
  if (!parsed.ok && !record.starts_with("failed ")) return std::nullopt;
  record.remove_prefix(parsed.ok ? 3 : 7);  // "failed "
  if (!TakeNumber(record, parsed.tokens)) return std::nullopt;
  parsed.line = record;
  return parsed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path, const RequestFile& file) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return absl::NotFoundError(absl::StrCat(path, ": the journal cannot be written: ", std::strerror(errno)));
  }
  std::unique_ptr<Journal> journal(new Journal(path, descriptor, file.size()));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": another process works on this batch; wait for its end"));
  }
  MOE_RETURN_IF_ERROR(journal->ReadTitle(file));
  MOE_RETURN_IF_ERROR(journal->Recover());
  return journal;
}

// Reads the first line, or writes it.
absl::Status Journal::ReadTitle(const RequestFile& file) {
  LineReader reader(descriptor_, kMaxRecordBytes);
  const std::optional<std::string_view> title = reader.Next();
  if (!title || !reader.whole()) {  // new, or its maker was killed before anything else was written
    MutexLock lock(mutex_);
    const std::string text = Title(file);
    if (::ftruncate(descriptor_, 0) != 0) return CannotWrite(errno);
    MOE_RETURN_IF_ERROR(Write(text));
    if (::fsync(descriptor_) != 0) return CannotWrite(errno);
    const int error = SyncFolderOf(path_);
    return error == 0 ? absl::OkStatus() : CannotWrite(error);
  }
  const std::optional<FileIdentity> identity = ParseTitle(*title);
  if (!identity) {
    return absl::DataLossError(absl::StrCat(
        path_, ": its first line is damaged, so nothing tells which file it belongs to; remove it to begin anew"));
  }
  if (*identity != file.identity()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": has changed since this batch began: it has ",
                                                   file.size(), " requests in ", file.identity().bytes, " bytes, ",
                                                   path_, " is for ", identity->requests, " in ", identity->bytes,
                                                   " bytes; restore the file, or choose another output"));
  }
  return absl::OkStatus();
}

absl::Status Journal::Recover() {
  MutexLock lock(mutex_);
  if (::lseek(descriptor_, 0, SEEK_SET) < 0) return CannotWrite(errno);
  LineReader reader(descriptor_, kMaxRecordBytes);
  reader.Next();                 // the title
  std::optional<uint64_t> torn;  // where a line without an end begins: the last one
  while (const auto line = reader.Next()) {
    const auto parsed = reader.whole() ? ParseRecord(*line) : std::nullopt;
    if (!reader.whole()) torn = reader.offset();
    if (!parsed || parsed->index >= entries_.size() || entries_[parsed->index].offset != 0) {
      ++damaged_;
      continue;
    }
    if (parsed->mark != nullptr) {
      Count(*parsed->mark, entries_[parsed->index].deaths);
      continue;
    }
    Note(parsed->index, {.offset = reader.offset(), .bytes = static_cast<uint32_t>(line->size()), .ok = parsed->ok},
         parsed->tokens);
  }
  if (reader.error() != 0) {
    return absl::DataLossError(absl::StrCat(path_, ": cannot be read: ", std::strerror(reader.error())));
  }
  end_ = torn.value_or(reader.offset());
  // The next record begins a line.
  if (torn && ::ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) return CannotWrite(errno);
  return absl::OkStatus();
}

Journal::~Journal() { ::close(descriptor_); }

absl::Status Journal::CannotWrite(int error_number) const {
  return absl::ResourceExhaustedError(absl::StrCat(path_, ": cannot be written: ", std::strerror(error_number),
                                                   "; what is in it stays, so the batch can go on"));
}

absl::Status Journal::Write(std::string_view text) {
  const int error = WriteAll(descriptor_, text);
  if (error == 0) {
    end_ += text.size();
    return absl::OkStatus();
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) return CannotWrite(errno);
  return CannotWrite(error);
}

void Journal::Note(size_t index, Entry entry, uint64_t tokens) {
  entries_[index] = entry;
  ++counts_.done;
  if (!entry.ok) ++counts_.failed;
  counts_.generated_tokens += tokens;
}

absl::Status Journal::Append(size_t index, const Result& result) {
  const std::string record = Record(index, result);
  {
    MutexLock lock(mutex_);
    const uint64_t offset = end_;
    MOE_RETURN_IF_ERROR(Write(record));
    Note(index, {.offset = offset, .bytes = static_cast<uint32_t>(record.size() - 1), .ok = result.ok},
         result.generated_tokens);
    const auto now = std::chrono::steady_clock::now();
    if (now - synced_ < kSyncInterval) return absl::OkStatus();
    synced_ = now;
  }
  return Sync();
}

absl::Status Journal::Mark(size_t index, std::string_view word) {
  const std::string mark = WithChecksum(absl::StrCat(index, " ", std::string(word)));
  MutexLock lock(mutex_);
  return Write(mark);
}

absl::Status Journal::Begin(size_t index, bool alone) { return Mark(index, (alone ? kBegunAlone : kBegun).word); }

absl::Status Journal::Leave(size_t index, bool alone) { return Mark(index, (alone ? kLeftAlone : kLeft).word); }

Journal::Deaths Journal::DeathsOf(size_t index) const {
  MutexLock lock(mutex_);
  return entries_[index].deaths;
}

std::vector<size_t> Journal::Suspects() const {
  MutexLock lock(mutex_);
  std::vector<size_t> suspects;
  for (size_t index = 0; index < entries_.size(); ++index) {
    const Deaths& deaths = entries_[index].deaths;
    if (deaths.beside_others > 0 || deaths.alone > 0) suspects.push_back(index);
  }
  return suspects;
}

absl::Status Journal::Sync() { return ::fdatasync(descriptor_) == 0 ? absl::OkStatus() : CannotWrite(errno); }

Journal::Counts Journal::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

bool Journal::Has(size_t index) const {
  MutexLock lock(mutex_);
  return entries_[index].offset != 0;
}

bool Journal::Succeeded(size_t index) const {
  MutexLock lock(mutex_);
  return entries_[index].ok;
}

absl::StatusOr<std::string> Journal::Read(size_t index) const {
  Entry entry;
  {
    MutexLock lock(mutex_);
    entry = entries_[index];
  }
  std::string record(entry.bytes, '\0');
  const int error = ReadAt(descriptor_, entry.offset, record);
  const std::optional<Parsed> parsed = error == 0 ? ParseRecord(record) : std::nullopt;
  if (!parsed || parsed->index != index) {
    return absl::DataLossError(absl::StrCat(path_, ": changed while the batch runs; run it again"));
  }
  return std::string(parsed->line);
}

}  // namespace moestro::batch
