// How two roles that compute on one machine share its CPUs.
#pragma once

#include <span>
#include <vector>

namespace moestro {

// Where a CPU (hardware thread) is.
struct CpuPlace {
  int cpu = 0;
  int node = 0;  // NUMA node
  int core = 0;  // the same number for hardware threads of one core, different ones for different cores of the machine
};

// Places of the given CPUs, in their order. Where the kernel does not tell, every CPU is a core of its own.
std::vector<CpuPlace> ReadCpuPlaces(std::span<const int> cpus);

struct CpuSplit {
  std::vector<int> decode;   // ascending
  std::vector<int> prefill;  // ascending
};

// Disjoint sets that cover `places`, so that prefill's arithmetic does not delay decode's steps. Decode gets every
// other core of each NUMA node, the first one included: half of them, rounded up. Every other one rather than the first
// half, since neighbours share a path to memory (the cores of one chiplet its link, of one cluster its ring stop) and
// decode needs all of these, and since on hybrid CPUs the kinds of cores come in blocks. The hardware threads of a core
// stay together. Nodes of a single core each are dealt out as if they were one node; one core alone is shared: both
// sets hold it. Depends on its argument only, so that both roles come to the same split by themselves.
CpuSplit SplitCpus(std::span<const CpuPlace> places);

}  // namespace moestro
