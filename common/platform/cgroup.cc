#include "common/platform/cgroup.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace moestro {
namespace {

bool HasItem(absl::string_view list, absl::string_view item) {
  const std::vector<absl::string_view> items = absl::StrSplit(list, ',');
  return std::ranges::find(items, item) != items.end();
}

// The path of this process's group in its hierarchy, parsed from a line "4:memory:/path" or "0::/path".
std::optional<std::string> GroupPath(const std::string& root, const CgroupHierarchy& hierarchy) {
  std::ifstream file(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() == 3 && HasItem(fields[1], hierarchy.controller)) return fields[2];
  }
  return std::nullopt;
}

struct Mount {
  std::string group;      // the mounted group
  std::string directory;  // the mount point
};

// Parses a line "32 31 0:29 /group /directory options ... - cgroup source options".
std::optional<Mount> FindMount(const std::string& root, const CgroupHierarchy& hierarchy) {
  std::ifstream file(absl::StrCat(root, "/proc/self/mountinfo"));
  for (std::string line; std::getline(file, line);) {
    const std::pair<std::string, std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<std::string> mount = absl::StrSplit(halves.first, ' ');
    const std::vector<std::string> source = absl::StrSplit(halves.second, ' ');
    if (mount.size() < 6 || source.size() < 3 || source[0] != hierarchy.file_system) continue;
    if (*hierarchy.controller != 0 && !HasItem(source[2], hierarchy.controller)) continue;
    return Mount{mount[3], mount[4]};
  }
  return std::nullopt;
}

// The group's path from the mount on. A container sees only its part of the tree, so the path may lead out of it, or
// begin with groups above the mount, which cannot be read: then empty, the mount itself.
std::string BelowMount(absl::string_view path, absl::string_view mounted) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  if (std::ranges::find(parts, "..") != parts.end()) return "";
  if (mounted != "/" && absl::ConsumePrefix(&path, mounted) && !path.empty() && path.front() != '/') return "";
  return std::string(absl::StripSuffix(path, "/"));
}

}  // namespace

std::vector<std::string> CgroupDirectories(const std::string& root, const CgroupHierarchy& hierarchy) {
  const std::optional<std::string> path = GroupPath(root, hierarchy);
  const std::optional<Mount> mount = FindMount(root, hierarchy);
  if (!path || !mount) return {};
  std::string below = BelowMount(*path, mount->group);
  std::vector<std::string> directories;
  for (;; below.resize(below.rfind('/'))) {
    directories.push_back(mount->directory + below);
    if (below.empty() || below.rfind('/') == std::string::npos) return directories;
  }
}

std::optional<int64_t> ReadCgroupNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t number = 0;
  if (!std::getline(file, text) || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

}  // namespace moestro
