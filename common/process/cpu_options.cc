#include "common/process/cpu_options.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/platform/cpu_list.h"
#include "common/platform/cpu_split.h"
#include "common/platform/numa.h"
#include "common/process/flag_check.h"
#include "common/process/flags.h"

namespace moestro {
namespace {

constexpr char kAutoGpu[] = "auto-gpu";

int Threads(const CpuOptions& options) {
  return options.threads > 0 ? options.threads : static_cast<int>(OnePerCore(ReadCpuPlaces(AllowedCpus())).size());
}

absl::StatusOr<std::vector<int>> ChooseCpus(const std::string& wanted, CpuRole role, const std::vector<int>& allowed) {
  if (wanted == "all" || (wanted == "auto" && role == CpuRole::kAll)) return allowed;
  if (wanted == "auto" || (wanted == kAutoGpu && role != CpuRole::kAll)) {
    CpuSplit split =
        SplitCpus(ReadCpuPlaces(allowed), wanted == kAutoGpu ? CpuSplitKind::kFewForPrefill : CpuSplitKind::kHalves);
    return role == CpuRole::kDecode ? std::move(split.decode) : std::move(split.prefill);
  }
  absl::StatusOr<std::vector<int>> cpus = ParseCpuList(wanted);
  if (!cpus.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--cpus ", wanted, ": ", cpus.status().message(), "; or use auto",
                                                   role == CpuRole::kAll ? "" : ", auto-gpu", " or all"));
  }
  for (const int cpu : *cpus) {
    if (std::ranges::binary_search(allowed, cpu)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--cpus ", wanted, ": this process has no CPU ", cpu, "; it may use ", FormatCpuList(allowed)));
  }
  return cpus;
}

absl::Status BindTo(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "--cpus " + FormatCpuList(cpus));
}

absl::Status AddNice(int increment) {
  constexpr int kMostNice = 19;
  const int wanted = std::min(getpriority(PRIO_PROCESS, 0) + increment, kMostNice);
  if (increment == 0 || setpriority(PRIO_PROCESS, 0, wanted) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--nice ", increment,
                                                 ": not permitted; less than 0 needs CAP_SYS_NICE, 0 to ", kMostNice,
                                                 " is open to everyone"));
}

}  // namespace

void AddCpuShare(FlagSet& flags, CpuRole role, CpuShare& share) {
  const char* chosen = role == CpuRole::kAll      ? "all"
                       : role == CpuRole::kDecode ? "half of the cores of each NUMA node; prefill has the others"
                                                  : "half of the cores of each NUMA node; decode has the others";
  flags
      .Add("--cpus", share.cpus,
           absl::StrCat("CPUs of the process, such as 0-3,8; all: those it was started with; auto: ", chosen,
                        role == CpuRole::kAll ? ""
                                              : "; auto-gpu, the same for both: prefill has two cores of each NUMA "
                                                "node, because a GPU computes its prompts, and decode the others"))
      .Because("a role alone has all cores: what the other does not use is lent");
  flags
      .Add("--nice", share.nice,
           "Lowers the process's priority by this, up to 19; a negative value raises it and needs privileges")
      .Because(role == CpuRole::kPrefill ? "tokens of running answers go before prompts on CPUs that both use"
                                         : "the priority it was started with");
}

absl::StatusOr<std::vector<int>> TakeCpuShare(const CpuShare& share, CpuRole role) {
  MOE_RETURN_IF_ERROR(CheckFlagRange("--nice", share.nice, -20, 19));
  const std::vector<int> allowed = AllowedCpus();
  MOE_ASSIGN_OR_RETURN(const std::vector<int> cpus, ChooseCpus(share.cpus, role, allowed));
  std::vector<int> others;
  std::ranges::set_difference(allowed, cpus, std::back_inserter(others));
  if (!others.empty()) MOE_RETURN_IF_ERROR(BindTo(cpus));
  MOE_RETURN_IF_ERROR(AddNice(share.nice));
  return others;
}

void AddCpuOptions(FlagSet& flags, CpuOptions& options) {
  flags
      .Add("--threads", options.threads,
           "Worker threads; 0: one per core that the process may use, as far as a quota of CPU time allows")
      .Because("found at the start");
  flags
      .Add("--numa-domains", options.numa_domains,
           "Parts of the machine that compute on separate weights; 0: one per NUMA node. The same for all "
           "roles of a node; more domains than NUMA nodes split the CPUs evenly. Does not affect results")
      .Because("found at the start");
}

absl::Status ValidateCpuOptions(const CpuOptions& options) {
  MOE_RETURN_IF_ERROR(CheckFlagRange("--threads", options.threads, 0, 1024));
  if (options.numa_domains == 0) return absl::OkStatus();
  if (options.numa_domains >= 1 && options.numa_domains <= Threads(options)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--numa-domains ", options.numa_domains, ": must be 1 to ", Threads(options),
                   ", the number of --threads, since each domain needs a thread; 0 chooses"));
}

WorkerPool::Options PoolOptions(const CpuOptions& options) {
  const int threads = Threads(options);
  const int nodes = static_cast<int>(ReadNumaNodes().size());
  return {.threads = threads, .domains = options.numa_domains > 0 ? options.numa_domains : std::min(nodes, threads)};
}

void TellCpus(const CpuOptions& options, const WorkerPool& pool, const std::optional<CpuQuota>& quota,
              Settings& settings) {
  const std::vector<int> allowed = AllowedCpus();
  settings.Derive("cpus", FormatCpuList(allowed), "this role's part of the CPUs that the process was started with");
  if (options.threads == 0) {
    std::string formula =
        absl::StrCat(pool.own_threads(), " cores of its CPUs, and ", pool.threads() - pool.own_threads(),
                     " of the other role's while that computes nothing");
    if (quota) absl::StrAppend(&formula, "; ", quota->file, " allows ", quota->cpus, " CPUs");
    const int threads = quota ? std::min(pool.threads(), ThreadsOf(*quota)) : pool.threads();
    settings.Derive("threads", absl::StrCat(threads), formula);
  }
  if (options.numa_domains == 0) {
    settings.Derive("numa-domains", absl::StrCat(pool.domains()),
                    absl::StrCat(ReadNumaNodes().size(), " NUMA nodes, at most one domain a thread"));
  }
}

}  // namespace moestro
