// What the benchmark ran on: never the machine's name, an address or a path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadtest/bench/memory.h"
#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

struct Machine {
  std::string cpu_model;               // of a virtual machine often no more than "AMD EPYC"
  int cpu_family = 0;                  // with cpu_number what CPUID says, which tells generations apart; 0: unknown
  int cpu_number = 0;                  // CPUID's model
  std::vector<std::string> cpu_flags;  // those that the kernels ask for
  int cores = 0;                       // that this process may run on
  int64_t l2_bytes = 0;                // of one core; 0: unknown
  int64_t l3_bytes = 0;                // of all last-level caches together; 0: unknown
  int64_t memory_bytes = 0;
  std::string huge_pages_anonymous;  // the kernel's setting for anonymous memory: "madvise"
  std::string huge_pages_shared;     // and for shared memory, where served weights lie
  std::string kernels_isa;           // which table of kernels ran
  std::string probes_isa;            // which ceilings
  std::string dot_instruction;
  ReadAhead read_ahead;  // with which the read ceiling was best
  std::string compiler;
  std::string build;  // build type
  std::string version;
  std::string revision;  // of the sources: BuildInfo's
  PageUse pages;         // when most memory was in use
};

// All but what the run decides: ISAs, prefetch distance, pages.
Machine DescribeMachine();

}  // namespace moestro::bench
