// A process's actual memory use, and its mappings of a shared object. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// Resident bytes. The kernel counts a page as private while only one process maps it. So pages of a shared-memory
// object that no other process has touched count as private.
struct MemoryUse {
  int64_t private_bytes = 0;
  int64_t shared_bytes = 0;
  int64_t rss_bytes = 0;
};

// pid 0: this process. The kernel walks every mapped page, which takes seconds with a large model mapped, so call it
// rarely. NOT_FOUND if there is no such process, PERMISSION_DENIED if this process may not inspect it.
absl::StatusOr<MemoryUse> ReadMemoryUse(int pid);

// This process's own memory. Cheap: the kernel keeps these counts.
struct OwnMemory {
  int64_t anonymous_bytes = 0;   // resident; neither files nor shared objects, whichever process touched them
  int64_t page_table_bytes = 0;  // page tables of all mappings, shared objects included: 2 MB per GB with 4 KiB pages
};
absl::StatusOr<OwnMemory> ReadOwnMemory();

struct MappingUse {
  std::string permissions;  // "r--s": read-only, shared; the union over several mappings
  uint64_t inode = 0;       // two processes with the same inode share the same pages
  int64_t rss_bytes = 0;
  int64_t private_bytes = 0;  // see MemoryUse
};

// How `pid` (0: this process) maps the shared-memory object `shm_name`, even if it has been unlinked. NOT_FOUND if it
// does not map it; other errors as above.
absl::StatusOr<MappingUse> FindMapping(int pid, const std::string& shm_name);

struct AvailableMemory {
  int64_t bytes = 0;
  // What limits the bytes, for an error message: "this machine has 1.00 GiB of memory available", or the limit of a
  // control group and the file that sets it.
  std::string reason;
};
// Memory that this process can still take: available on the machine without swapping, and below the limit of every
// enclosing control group. `root` is the directory that stands for "/" (tests).
absl::StatusOr<AvailableMemory> ReadAvailableMemory(const std::string& root = "");

}  // namespace moestro
