// Control groups (cgroups), version 1 or 2: those of a container or of a service.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moestro {

// A hierarchy of groups.
struct CgroupHierarchy {
  const char* file_system = "cgroup2";  // of version 2; "cgroup": of version 1
  const char* controller = "";          // of version 1, such as "memory"
};

// The directories of this process's groups: its own first, then those around it. Empty if there are none or they cannot
// be read. `root` is the directory that stands for "/" (tests), and is not in the result. Thread-safe.
std::vector<std::string> CgroupDirectories(const std::string& root, const CgroupHierarchy& hierarchy);

// What a file with one number holds: nullopt for "max", and if there is no such file.
std::optional<int64_t> ReadCgroupNumber(const std::string& path);

}  // namespace moestro
