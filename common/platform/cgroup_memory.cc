#include "common/platform/cgroup_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace moestro {
namespace {

// The files of one cgroup version in a group's directory.
struct Version {
  const char* file_system;          // in mountinfo
  const char* controller;           // in /proc/self/cgroup and in the mount's options; empty: the only hierarchy
  std::vector<const char*> limits;  // the lowest one applies
  const char* usage;
  std::vector<std::string> caches;  // keys of memory.stat
};

std::vector<Version> Versions() {
  return {{"cgroup2", "", {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}},
          {"cgroup",
           "memory",
           {"memory.limit_in_bytes"},
           "memory.usage_in_bytes",
           {"total_inactive_file", "total_active_file"}}};
}

bool HasItem(absl::string_view list, absl::string_view item) {
  const std::vector<absl::string_view> items = absl::StrSplit(list, ',');
  return std::ranges::find(items, item) != items.end();
}

// The path of this process's group in its hierarchy, parsed from a line "4:memory:/path" or "0::/path".
std::optional<std::string> GroupPath(const std::string& root, const Version& version) {
  std::ifstream file(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() == 3 && HasItem(fields[1], version.controller)) return fields[2];
  }
  return std::nullopt;
}

struct Mount {
  std::string group;      // the mounted group
  std::string directory;  // the mount point
};

// Parses a line "32 31 0:29 /group /directory options ... - cgroup source options".
std::optional<Mount> FindMount(const std::string& root, const Version& version) {
  std::ifstream file(absl::StrCat(root, "/proc/self/mountinfo"));
  for (std::string line; std::getline(file, line);) {
    const std::pair<std::string, std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<std::string> mount = absl::StrSplit(halves.first, ' ');
    const std::vector<std::string> source = absl::StrSplit(halves.second, ' ');
    if (mount.size() < 6 || source.size() < 3 || source[0] != version.file_system) continue;
    if (*version.controller != 0 && !HasItem(source[2], version.controller)) continue;
    return Mount{mount[3], mount[4]};
  }
  return std::nullopt;
}

// Reads a file that holds one number. "max" is not a number and yields nullopt.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t number = 0;
  if (!std::getline(file, text) || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

int64_t CacheBytes(const std::string& path, const Version& version) {
  std::ifstream file(path);
  int64_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const bool counts = std::ranges::find(version.caches, field.first) != version.caches.end();
    if (int64_t value = 0; counts && absl::SimpleAtoi(field.second, &value)) bytes += value;
  }
  return bytes;
}

std::optional<CgroupMemory> ReadGroup(const std::string& root, const std::string& directory, const Version& version) {
  const std::optional<int64_t> usage = ReadNumber(absl::StrCat(root, directory, "/", version.usage));
  if (!usage) return std::nullopt;
  std::optional<CgroupMemory> group;
  for (const char* name : version.limits) {
    const std::string file = absl::StrCat(directory, "/", name);
    const std::optional<int64_t> limit = ReadNumber(root + file);
    if (!limit || (group && *limit >= group->limit_bytes)) continue;
    group = CgroupMemory{.limit_file = file, .limit_bytes = *limit};
  }
  if (!group) return std::nullopt;
  const int64_t cache = CacheBytes(absl::StrCat(root, directory, "/memory.stat"), version);
  group->used_bytes = std::max<int64_t>(0, *usage - cache);
  return group;
}

void AddGroups(const std::string& root, const Version& version, std::vector<CgroupMemory>& groups) {
  const std::optional<std::string> path = GroupPath(root, version);
  const std::optional<Mount> mount = FindMount(root, version);
  if (!path || !mount) return;
  // A container sees only its part of the tree. The path may contain groups above the mount, which cannot be read.
  absl::string_view inside = *path;
  if (mount->group != "/") absl::ConsumePrefix(&inside, mount->group);
  std::string below(absl::StripSuffix(inside, "/"));
  if (absl::StrContains(below, "..")) below.clear();  // outside the mount
  for (;; below.resize(below.rfind('/'))) {
    if (const auto group = ReadGroup(root, mount->directory + below, version)) groups.push_back(*group);
    if (below.empty() || below.rfind('/') == std::string::npos) return;
  }
}

}  // namespace

std::vector<CgroupMemory> ReadCgroupMemory(const std::string& root) {
  std::vector<CgroupMemory> groups;
  for (const Version& version : Versions()) AddGroups(root, version, groups);
  return groups;
}

}  // namespace moestro
