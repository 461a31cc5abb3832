#include "common/rpc/cpu_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/platform/numa.h"
#include "common/rpc/flag_check.h"

namespace moestro {
namespace {

int Threads(const CpuOptions& options) {
  return options.threads > 0 ? options.threads : static_cast<int>(AllowedCpus().size());
}

}  // namespace

void AddCpuOptions(CLI::App& app, CpuOptions& options) {
  app.add_option("--threads", options.threads, "Worker threads; 0: one per CPU that the process may use");
  app.add_option("--numa-domains", options.numa_domains,
                 "Parts of the machine that compute on weights of their own; 0: one per NUMA node. The same for all "
                 "roles of a node; more than there are nodes cut the CPUs evenly. No result depends on it");
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

}  // namespace moestro
