// /proc/<pid>/smaps as data: the memory mappings of a process and their backing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro {

struct MemoryMapping {
  uint64_t begin = 0;  // addresses, end exclusive
  uint64_t end = 0;
  std::string permissions;  // the kernel's notation, for example "r--s"
  uint64_t inode = 0;       // 0: no file
  std::string path;         // ends in " (deleted)" for an unlinked file; may be empty
  int64_t rss_bytes = 0;
  int64_t shared_bytes = 0;   // resident pages that more than one process maps
  int64_t private_bytes = 0;  // resident pages that only this process maps
  int64_t huge_bytes = 0;     // shared memory mapped with huge pages
};

// pid 0: this process. NOT_FOUND if there is no such process, PERMISSION_DENIED if this process may not inspect it.
absl::StatusOr<std::vector<MemoryMapping>> ReadMappings(int pid);

// The sum over all mappings as one entry without addresses, from smaps_rollup if the kernel has it. Errors as above.
absl::StatusOr<MemoryMapping> ReadMappingTotals(int pid);

}  // namespace moestro
