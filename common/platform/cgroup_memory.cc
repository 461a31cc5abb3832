#include "common/platform/cgroup_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/platform/cgroup.h"

namespace moestro {
namespace {

// The files of one cgroup version in a group's directory.
struct Version {
  CgroupHierarchy hierarchy;
  std::vector<const char*> limits;  // the lowest one applies
  const char* usage;
  std::vector<std::string> caches;  // keys of memory.stat
};

std::vector<Version> Versions() {
  return {{{"cgroup2", ""}, {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}},
          {{"cgroup", "memory"},
           {"memory.limit_in_bytes"},
           "memory.usage_in_bytes",
           {"total_inactive_file", "total_active_file"}}};
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
  const std::optional<int64_t> usage = ReadCgroupNumber(absl::StrCat(root, directory, "/", version.usage));
  if (!usage) return std::nullopt;
  std::optional<CgroupMemory> group;
  for (const char* name : version.limits) {
    const std::string file = absl::StrCat(directory, "/", name);
    const std::optional<int64_t> limit = ReadCgroupNumber(root + file);
    if (!limit || (group && *limit >= group->limit_bytes)) continue;
    group = CgroupMemory{.limit_file = file, .limit_bytes = *limit};
  }
  if (!group) return std::nullopt;
  const int64_t cache = CacheBytes(absl::StrCat(root, directory, "/memory.stat"), version);
  group->used_bytes = std::max<int64_t>(0, *usage - cache);
  return group;
}

}  // namespace

std::vector<CgroupMemory> ReadCgroupMemory(const std::string& root) {
  std::vector<CgroupMemory> groups;
  for (const Version& version : Versions()) {
    for (const std::string& directory : CgroupDirectories(root, version.hierarchy)) {
      if (const auto group = ReadGroup(root, directory, version)) groups.push_back(*group);
    }
  }
  return groups;
}

}  // namespace moestro
