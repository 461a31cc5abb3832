// The CPU time that control groups (cgroups) leave to this process: `docker --cpus`, limits of Kubernetes and systemd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moestro {

struct CpuQuota {
  double cpus = 0;        // above 0; 1.5: as much as three CPUs that rest half of the time
  std::string file = {};  // that sets it
  uint64_t group = 0;     // equal for processes that share it, in whatever container they are
};

// The lowest quota of this process's groups, of either version; nullopt: none. `root` as in cgroup.h. Some ten small
// files are read. Thread-safe.
std::optional<CpuQuota> ReadCpuQuota(const std::string& root = "");

// Threads that compute at the same time under a quota: more would use it up together, and then all rest until the next
// period, those that others wait for among them. At least 1.
int ThreadsOf(const CpuQuota& quota);

// CPUs that the calling thread may use, or the threads of its quota if these are fewer.
int UsableCpus();

}  // namespace moestro
