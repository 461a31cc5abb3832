#include "common/platform/process_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/platform/cgroup_memory.h"
#include "common/platform/smaps.h"

namespace moestro {
namespace {

// Adds to `permissions` those of `other` that it lacks.
void AddPermissions(const std::string& other, std::string& permissions) {
  for (size_t i = 0; i < std::min(other.size(), permissions.size()); ++i) {
    if (permissions[i] == '-') permissions[i] = other[i];
  }
}

// The number of KiB after `key` in a file of lines "Key:   123 kB".
absl::StatusOr<int64_t> ReadKibibytes(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    int64_t kib = 0;
    if (std::istringstream(line.substr(key.size())) >> kib) return kib * 1024;
  }
  return absl::UnavailableError(absl::StrCat(path, " has no ", key));
}

}  // namespace

absl::StatusOr<MemoryUse> ReadMemoryUse(int pid) {
  MOE_ASSIGN_OR_RETURN(const MemoryMapping total, ReadMappingTotals(pid));
  return MemoryUse{
      .private_bytes = total.private_bytes, .shared_bytes = total.shared_bytes, .rss_bytes = total.rss_bytes};
}

absl::StatusOr<MappingUse> FindMapping(int pid, const std::string& shm_name) {
  MOE_ASSIGN_OR_RETURN(const std::vector<MemoryMapping> mappings, ReadMappings(pid));
  const std::string path = absl::StrCat("/dev/shm/", shm_name);
  const std::string unlinked_path = absl::StrCat(path, " (deleted)");
  MappingUse use;
  for (const MemoryMapping& mapping : mappings) {
    if (mapping.path != path && mapping.path != unlinked_path) continue;
    if (use.permissions.empty()) use.permissions = mapping.permissions;
    AddPermissions(mapping.permissions, use.permissions);
    use.inode = mapping.inode;
    use.rss_bytes += mapping.rss_bytes;
    use.private_bytes += mapping.private_bytes;
  }
  if (use.permissions.empty()) return absl::NotFoundError(absl::StrCat("shared memory ", shm_name, " is not mapped"));
  return use;
}

absl::StatusOr<OwnMemory> ReadOwnMemory() {
  OwnMemory own;
  MOE_ASSIGN_OR_RETURN(own.anonymous_bytes, ReadKibibytes("/proc/self/status", "RssAnon:"));
  MOE_ASSIGN_OR_RETURN(own.page_table_bytes, ReadKibibytes("/proc/self/status", "VmPTE:"));
  return own;
}

absl::StatusOr<AvailableMemory> ReadAvailableMemory(const std::string& root) {
  constexpr double kGib = 1 << 30;
  AvailableMemory available;
  MOE_ASSIGN_OR_RETURN(available.bytes, ReadKibibytes(root + "/proc/meminfo", "MemAvailable:"));
  available.reason =
      absl::StrFormat("this machine has %.2f GiB of memory available", static_cast<double>(available.bytes) / kGib);
  for (const CgroupMemory& group : ReadCgroupMemory(root)) {
    const int64_t left = std::max<int64_t>(0, group.limit_bytes - group.used_bytes);
    if (left >= available.bytes) continue;
    available.bytes = left;
    available.reason = absl::StrFormat("the limit of %.2f GiB in %s leaves %.2f GiB of memory",
                                       static_cast<double>(group.limit_bytes) / kGib, group.limit_file,
                                       static_cast<double>(left) / kGib);
  }
  return available;
}

}  // namespace moestro
