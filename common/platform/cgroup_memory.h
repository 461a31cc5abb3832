// Memory limits of control groups (cgroups), version 1 or 2: those of a container or of a service.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moestro {

struct CgroupMemory {
  std::string limit_file;  // the file that sets the limit
  int64_t limit_bytes = 0;
  int64_t used_bytes = 0;  // without the file cache, which the kernel reclaims on demand
};

// The groups of this process that have a limit: its own first, then the enclosing groups. Empty if there are none or
// they cannot be read. `root` is the directory that stands for "/" (tests). Thread-safe.
std::vector<CgroupMemory> ReadCgroupMemory(const std::string& root = "");

}  // namespace moestro
