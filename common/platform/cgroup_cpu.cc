#include "common/platform/cgroup_cpu.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/platform/cgroup.h"
#include "common/platform/numa.h"

namespace moestro {
namespace {

// Microseconds of CPU time in each period; without a limit the first is "max", or below 0.
struct Bandwidth {
  std::string file;
  int64_t quota = 0;
  int64_t period = 0;
};

Bandwidth ReadVersion2(const std::string& root, const std::string& directory) {
  Bandwidth bandwidth{.file = absl::StrCat(directory, "/cpu.max")};
  std::ifstream(root + bandwidth.file) >> bandwidth.quota >> bandwidth.period;  // "max" leaves the zeros
  return bandwidth;
}

Bandwidth ReadVersion1(const std::string& root, const std::string& directory) {
  const std::string file = absl::StrCat(directory, "/cpu.cfs_quota_us");
  return {.file = file,
          .quota = ReadCgroupNumber(root + file).value_or(0),
          .period = ReadCgroupNumber(absl::StrCat(root, directory, "/cpu.cfs_period_us")).value_or(0)};
}

uint64_t GroupOf(const std::string& directory) {
  struct stat status;
  return stat(directory.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::optional<CpuQuota> ReadCpuQuota(const std::string& root) {
  std::optional<CpuQuota> lowest;
  const auto add = [&](const CgroupHierarchy& hierarchy, Bandwidth (*read)(const std::string&, const std::string&)) {
    for (const std::string& directory : CgroupDirectories(root, hierarchy)) {
      const Bandwidth bandwidth = read(root, directory);
      if (bandwidth.quota <= 0 || bandwidth.period <= 0) continue;
      const double cpus = static_cast<double>(bandwidth.quota) / static_cast<double>(bandwidth.period);
      if (lowest && cpus >= lowest->cpus) continue;
      lowest = {.cpus = cpus, .file = bandwidth.file, .group = GroupOf(root + directory)};
    }
  };
  add({"cgroup2", ""}, ReadVersion2);
  add({"cgroup", "cpu"}, ReadVersion1);
  return lowest;
}

int ThreadsOf(const CpuQuota& quota) { return static_cast<int>(std::clamp(std::floor(quota.cpus), 1.0, 1e6)); }

int UsableCpus() {
  const int allowed = static_cast<int>(AllowedCpus().size());
  const std::optional<CpuQuota> quota = ReadCpuQuota();
  return quota ? std::min(allowed, ThreadsOf(*quota)) : allowed;
}

}  // namespace moestro
