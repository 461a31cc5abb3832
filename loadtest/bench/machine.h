// Describes the machine of a run. Never contains the machine's name, an address or a path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadtest/bench/memory.h"
#include "loadtest/bench/probes/probes.h"

namespace moestro::bench {

struct Machine {
  std::string cpu_model;               // in a virtual machine often only "AMD EPYC"
  int cpu_family = 0;                  // with cpu_number, CPUID's values, which distinguish generations; 0: unknown
  int cpu_number = 0;                  // CPUID's model
  std::vector<std::string> cpu_flags;  // those that the kernels require
  int cores = 0;                       // available to this process
  int64_t l2_bytes = 0;                // of one core; 0: unknown
  int64_t l3_bytes = 0;                // of all last-level caches together; 0: unknown
  int64_t memory_bytes = 0;
  std::string huge_pages_anonymous;  // the kernel's setting for anonymous memory: "madvise"
  std::string huge_pages_shared;     // and for shared memory, which holds served weights
  std::string kernels_isa;           // the table of kernels that ran
  std::string probes_isa;            // the probes that ran
  std::string dot_instruction;
  ReadAhead read_ahead;  // the best for the read ceiling
  std::string compiler;
  std::string build;  // build type
  std::string version;
  std::string revision;  // of the sources, from BuildInfo
  PageUse pages;         // at the time of the highest memory use
};

// Everything except what the run decides: ISAs, prefetch distance, pages.
Machine DescribeMachine();

}  // namespace moestro::bench
