// CPU options of a role that computes on the CPU: its CPUs, priority, threads and NUMA domains.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/platform/cgroup_cpu.h"
#include "common/platform/worker_pool.h"
#include "common/process/settings.h"

namespace moestro {

class FlagSet;

// Selects the CPUs of `--cpus auto` and `auto-gpu` (SplitCpus); kAll for a role that computes while no other does.
enum class CpuRole { kAll, kDecode, kPrefill };

// A process's share of the machine.
struct CpuShare {
  std::string cpus = "auto";  // "auto", "auto-gpu", "all" or a list like "0-3,8"
  int nice = 0;               // added to the inherited niceness, as in nice(1)
};

// Adds --cpus and --nice.
void AddCpuShare(FlagSet& flags, CpuRole role, CpuShare& share);

// Binds the calling thread to the CPUs and sets its niceness. Threads started later inherit both, so call it before
// starting any thread. Returns the CPUs that it was allowed before and has lost: those of other roles. INVALID_ARGUMENT
// names the flag, the missing CPU and the available ones, or says that the nice value needs privileges.
absl::StatusOr<std::vector<int>> TakeCpuShare(const CpuShare& share, CpuRole role);

struct CpuOptions {
  int threads = 0;       // 0 = one per core that the process may use; SharedCores keeps them within a quota
  int numa_domains = 0;  // 0 = one per NUMA node of these CPUs, at most one per thread
};

// Adds --threads and --numa-domains.
void AddCpuOptions(FlagSet& flags, CpuOptions& options);

// INVALID_ARGUMENT names the flag: threads out of range, or more domains than threads.
absl::Status ValidateCpuOptions(const CpuOptions& options);

// The pool for these options, with defaults filled in. REQUIRES valid options.
WorkerPool::Options PoolOptions(const CpuOptions& options);

// Completes the settings of these flags and of --cpus by what the role has: its pool, and its quota of CPU time if any.
void TellCpus(const CpuOptions& options, const WorkerPool& pool, const std::optional<CpuQuota>& quota,
              Settings& settings);

}  // namespace moestro
