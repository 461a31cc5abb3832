#include "common/platform/process_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/platform/smaps.h"

namespace moestro {
namespace {

// Adds to `permissions` what `other` allows and it does not.
void AddPermissions(const std::string& other, std::string& permissions) {
  for (size_t i = 0; i < std::min(other.size(), permissions.size()); ++i) {
    if (permissions[i] == '-') permissions[i] = other[i];
  }
}

// The number of KiB behind `key` in a file of lines "Key:   123 kB".
absl::StatusOr<int64_t> ReadKibibytes(const char* path, const std::string& key) {
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
  return MemoryUse{.private_bytes = total.private_bytes,
                   .shared_bytes = total.shared_bytes,
                   .rss_bytes = total.rss_bytes};
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

absl::StatusOr<int64_t> ReadAnonymousBytes() { return ReadKibibytes("/proc/self/status", "RssAnon:"); }

absl::StatusOr<int64_t> ReadAvailableMemory() { return ReadKibibytes("/proc/meminfo", "MemAvailable:"); }

}  // namespace moestro
