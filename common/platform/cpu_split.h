// How two computing roles share the CPUs of one machine.
#pragma once

#include <span>
#include <vector>

namespace moestro {

// The location of a CPU (hardware thread).
struct CpuPlace {
  int cpu = 0;
  int node = 0;  // NUMA node
  int core = 0;  // equal for hardware threads of one core, different for different cores of the machine
};

// Places of the given CPUs, in their order. If the kernel does not report cores, every CPU is its own core.
std::vector<CpuPlace> ReadCpuPlaces(std::span<const int> cpus);

// The first hardware thread of each core, in their order. Two threads of a core compute little more than one, because
// they share its arithmetic units and its path to memory.
std::vector<int> OnePerCore(std::span<const CpuPlace> places);

struct CpuSplit {
  std::vector<int> decode;   // ascending
  std::vector<int> prefill;  // ascending
};

// kHalves: below. kFewForPrefill: for a GPU that computes the prompts. Prefill then issues copies and launches, and
// stages what is not pinned; it has the last two cores of each NUMA node, or half if there are fewer than four.
enum class CpuSplitKind { kHalves, kFewForPrefill };

// Disjoint sets that cover `places`, so that prefill's arithmetic does not delay decode's steps. Decode gets every
// other core of each NUMA node, starting with the first: half of them, rounded up. Not the first half, for two reasons.
// Neighbours share a path to memory (cores of one chiplet its link, of one cluster its ring stop), and decode needs all
// paths. On hybrid CPUs, the kinds of cores come in blocks. Hardware threads of a core stay together. Nodes with a
// single core are treated as one node. A single core is in both sets. The result depends only on the argument, so both
// roles compute the same split independently.
CpuSplit SplitCpus(std::span<const CpuPlace> places, CpuSplitKind kind = CpuSplitKind::kHalves);

}  // namespace moestro
