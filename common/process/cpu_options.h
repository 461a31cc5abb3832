// What a role that computes on the CPU is told about it: which CPUs, at which priority, threads and NUMA domains.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/platform/worker_pool.h"

namespace CLI {
class App;
}

namespace moestro {

// Whose CPUs `--cpus auto` chooses (SplitCpus); kAll for a role that computes when no other does.
enum class CpuRole { kAll, kDecode, kPrefill };

// The place of a process among others.
struct CpuShare {
  std::string cpus = "auto";  // "auto", "all" or a list like "0-3,8"
  int nice = 0;               // added to the niceness that the process was started with, as nice(1) does
};

// Adds --cpus and --nice.
void AddCpuShare(CLI::App& app, CpuRole role, CpuShare& share);

// Binds the calling thread to the CPUs and sets its niceness; threads that it starts later inherit both, so call it
// before any other thread is started. Returns the CPUs that it was allowed before and is not any more: those of other
// roles. INVALID_ARGUMENT names the flag, the CPU that is not there and those that are, or says that the nice value
// needs privileges.
absl::StatusOr<std::vector<int>> TakeCpuShare(const CpuShare& share, CpuRole role);

struct CpuOptions {
  int threads = 0;       // 0 = one per CPU that the process may use
  int numa_domains = 0;  // 0 = one per NUMA node of these CPUs, at most one per thread
};

// Adds --threads and --numa-domains.
void AddCpuOptions(CLI::App& app, CpuOptions& options);

// INVALID_ARGUMENT names the flag: threads out of range, or more domains than threads.
absl::Status ValidateCpuOptions(const CpuOptions& options);

// The pool that these options ask for, defaults filled in. REQUIRES valid options.
WorkerPool::Options PoolOptions(const CpuOptions& options);

}  // namespace moestro
