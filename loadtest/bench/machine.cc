#include "loadtest/bench/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/report/build_info.h"

namespace moestro::bench {
namespace {

constexpr std::array kKnownFlags = {"avx2",        "avx_vnni", "fma",         "avx512f",    "avx512bw",
                                    "avx512vl",    "avx512dq", "avx512_vbmi", "avx512vbmi", "avx512_bf16",
                                    "avx512_vnni", "gfni",     "amx_tile",    "amx_bf16",   "amx_int8"};

// The value of the first line of /proc/cpuinfo that starts with `key`.
std::string CpuInfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos)
      return std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
  }
  return "";
}

std::vector<std::string> KnownFlags() {
  std::istringstream words(CpuInfo("flags"));
  std::vector<std::string> flags;
  for (std::string word; words >> word;) {
    if (std::ranges::find(kKnownFlags, word) != kKnownFlags.end()) flags.push_back(word);
  }
  return flags;
}

std::string FirstLine(const std::string& file_name) {
  std::ifstream file(file_name);
  std::string line;
  std::getline(file, line);
  return line;
}

// The choice in brackets: "always [madvise] never".
std::string HugePageSetting(const char* file_name) {
  const std::string line = FirstLine(file_name);
  const size_t begin = line.find('[');
  const size_t end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) return "unknown";
  return line.substr(begin + 1, end - begin - 1);
}

// Bytes of the caches of `level` that hold data: those of the first core, or the sum over all cores, each cache once.
// In a virtual machine the kernel reports them more reliably than CPUID.
int64_t CacheBytes(int level, bool all_cores) {
  int64_t bytes = 0;
  for (int cpu = 0;; ++cpu) {
    const std::string folder = absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/cache/index");
    if (FirstLine(folder + "0/level").empty() || (cpu > 0 && !all_cores)) return bytes;
    for (int index = 0;; ++index) {
      const std::string cache = absl::StrCat(folder, index, "/");
      const std::string cache_level = FirstLine(cache + "level");
      if (cache_level.empty()) break;
      if (cache_level != std::to_string(level) || FirstLine(cache + "type") == "Instruction") continue;
      // "0-7,16-23": counted by the first core that shares it.
      const bool first = std::atoi(FirstLine(cache + "shared_cpu_list").c_str()) == cpu;
      if (first) bytes += std::atoll(FirstLine(cache + "size").c_str()) * 1024;  // always in K
    }
  }
}

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

Machine DescribeMachine() {
  Machine machine;
  machine.cpu_model = CpuInfo("model name");
  machine.cpu_family = std::atoi(CpuInfo("cpu family").c_str());
  machine.cpu_number = std::atoi(CpuInfo("model\t").c_str());
  machine.cpu_flags = KnownFlags();
  machine.cores = UsableCores();
  machine.l2_bytes = CacheBytes(2, /*all_cores=*/false);
  machine.l3_bytes = CacheBytes(3, /*all_cores=*/true);
  machine.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  machine.huge_pages_anonymous = HugePageSetting("/sys/kernel/mm/transparent_hugepage/enabled");
  machine.huge_pages_shared = HugePageSetting("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const BuildInfo& built = ThisBuild();
  machine.compiler = built.compiler;
  machine.build = built.build;
  machine.version = built.version;
  machine.revision = built.revision;
  return machine;
}

}  // namespace moestro::bench
