// How much memory a process really uses, and how it maps one shared object. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace moestro {

// Resident bytes. The kernel counts a page as private while one process alone maps it, so pages of a shared-memory
// object that nobody else has touched are private here.
struct MemoryUse {
  int64_t private_bytes = 0;
  int64_t shared_bytes = 0;
  int64_t rss_bytes = 0;
};

// pid 0: this process. The kernel walks every mapped page for it, which takes seconds with a large model mapped: not
// for repeated use. NOT_FOUND if there is no such process, PERMISSION_DENIED if it is not ours to look at.
absl::StatusOr<MemoryUse> ReadMemoryUse(int pid);

// Of this process's own memory, cheap: the kernel counts it as it goes.
struct OwnMemory {
  int64_t anonymous_bytes = 0;   // resident; neither files nor shared objects, whoever touched them
  int64_t page_table_bytes = 0;  // that map all of it, the shared objects too: 2 MB for each GB in pages of 4 KiB
};
absl::StatusOr<OwnMemory> ReadOwnMemory();

struct MappingUse {
  std::string permissions;  // "r--s": read-only, shared; with several mappings, what any of them allows
  uint64_t inode = 0;       // two processes with the same inode share the same pages
  int64_t rss_bytes = 0;
  int64_t private_bytes = 0;  // see MemoryUse
};

// How `pid` (0: this process) maps the shared-memory object `shm_name`, unlinked meanwhile or not. NOT_FOUND if it does
// not; errors as above.
absl::StatusOr<MappingUse> FindMapping(int pid, const std::string& shm_name);

struct AvailableMemory {
  int64_t bytes = 0;
  // What does not let it be more, for an error: "this machine has 1.00 GiB of memory available", or a control group's
  // limit and where it is set.
  std::string reason;
};
// What this process can still take: of the machine without swapping, and below the limit of every control group that
// holds it. `root` is the directory that stands for "/" (tests).
absl::StatusOr<AvailableMemory> ReadAvailableMemory(const std::string& root = "");

}  // namespace moestro
