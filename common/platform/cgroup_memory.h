// What control groups (cgroups) leave a process to take: a container's or a service's memory limit, version 1 or 2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moestro {

struct CgroupMemory {
  std::string limit_file;  // where the limit is set
  int64_t limit_bytes = 0;
  int64_t used_bytes = 0;  // without the file cache, which the kernel takes back when it needs to
};

// The groups of this process that have a limit, its own first, then those that hold it. Empty where there are none or
// they cannot be read. `root` is the directory that stands for "/" (tests). Thread-safe.
std::vector<CgroupMemory> ReadCgroupMemory(const std::string& root = "");

}  // namespace moestro
