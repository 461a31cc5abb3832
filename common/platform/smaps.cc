#include "common/platform/smaps.h"

#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace moestro {
namespace {

// Removes the first word and the blanks around it from `text`, and returns the word.
absl::string_view TakeWord(absl::string_view& text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  const absl::string_view word = text.substr(0, text.find(' '));
  text = absl::StripAsciiWhitespace(text.substr(word.size()));
  return word;
}

// "7f00-7f10 r--s 00000000 00:19 42    /dev/shm/name": false for any other line.
bool ParseHeader(absl::string_view line, MemoryMapping& mapping) {
  const std::pair<absl::string_view, absl::string_view> range = absl::StrSplit(TakeWord(line), absl::MaxSplits('-', 1));
  mapping.permissions = std::string(TakeWord(line));
  TakeWord(line);  // offset
  TakeWord(line);  // device
  if (!absl::SimpleHexAtoi(range.first, &mapping.begin) || !absl::SimpleHexAtoi(range.second, &mapping.end) ||
      !absl::SimpleAtoi(TakeWord(line), &mapping.inode)) {
    return false;
  }
  mapping.path = std::string(line);
  return true;
}

// Parses "Rss:      4 kB" and adds it to its counter.
void AddCounter(absl::string_view line, MemoryMapping& mapping) {
  const absl::string_view key = TakeWord(line);
  int64_t kib = 0;
  if (!absl::SimpleAtoi(TakeWord(line), &kib)) return;
  const int64_t bytes = kib * 1024;
  if (key == "Rss:") mapping.rss_bytes += bytes;
  if (key == "Shared_Clean:" || key == "Shared_Dirty:") mapping.shared_bytes += bytes;
  if (key == "Private_Clean:" || key == "Private_Dirty:") mapping.private_bytes += bytes;
  if (key == "ShmemPmdMapped:") mapping.huge_bytes += bytes;
}

absl::StatusOr<std::vector<MemoryMapping>> ReadSmapsFile(int pid, const char* file) {
  const std::string path = absl::StrCat("/proc/", pid == 0 ? "self" : absl::StrCat(pid), "/", file);
  errno = 0;
  std::ifstream input(path);
  if (!input) return absl::ErrnoToStatus(errno != 0 ? errno : EIO, path);
  std::vector<MemoryMapping> mappings;
  for (std::string line; std::getline(input, line);) {
    MemoryMapping mapping;
    if (ParseHeader(line, mapping)) {
      mappings.push_back(std::move(mapping));
    } else if (!mappings.empty()) {
      AddCounter(line, mappings.back());
    }
  }
  // The file opens but cannot be read if the process may not be inspected or has just ended.
  if (mappings.empty()) return absl::NotFoundError(absl::StrCat(path, ": no readable mappings"));
  return mappings;
}

}  // namespace

absl::StatusOr<std::vector<MemoryMapping>> ReadMappings(int pid) { return ReadSmapsFile(pid, "smaps"); }

absl::StatusOr<MemoryMapping> ReadMappingTotals(int pid) {
  absl::StatusOr<std::vector<MemoryMapping>> mappings = ReadSmapsFile(pid, "smaps_rollup");
  if (!mappings.ok()) mappings = ReadMappings(pid);
  MOE_RETURN_IF_ERROR(mappings);
  MemoryMapping total;
  for (const MemoryMapping& mapping : *mappings) {
    total.rss_bytes += mapping.rss_bytes;
    total.shared_bytes += mapping.shared_bytes;
    total.private_bytes += mapping.private_bytes;
    total.huge_bytes += mapping.huge_bytes;
  }
  return total;
}

}  // namespace moestro
