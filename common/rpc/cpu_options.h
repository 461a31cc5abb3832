// What a role that computes on the CPU is told about it: threads and NUMA domains.
#pragma once

#include "absl/status/status.h"
#include "common/platform/worker_pool.h"

namespace CLI {
class App;
}

namespace moestro {

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
