// NUMA domains: which CPUs compute on which memory. All functions respect the calling thread's affinity mask (taskset,
// cpusets of containers) and work on machines without NUMA.
#pragma once

#include <sched.h>

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro {

struct NumaNode {
  int id = 0;             // the kernel's number
  std::vector<int> cpus;  // those of the requested CPUs that are on this node; ascending
};

// Nodes with CPUs that the calling thread may use, ascending; at least one. One node 0 with all CPUs if the kernel
// reports no nodes, or a container forbids asking (Docker's default profile lacks CAP_SYS_NICE).
std::vector<NumaNode> ReadNumaNodes();
// The same for the given CPUs, ascending, even if the calling thread may not use them.
std::vector<NumaNode> ReadNumaNodes(std::span<const int> cpus);

// CPUs that the calling thread may use, ascending; never empty.
std::vector<int> AllowedCpus();

// A part of the machine whose threads compute on their own memory.
struct NumaDomain {
  std::vector<int> cpus;   // empty if there are fewer CPUs than domains
  std::vector<int> nodes;  // the domain's memory; empty if domains share a node, since then no memory is nearer
};

// Makes `count` domains. With at least `count` nodes, domain d gets the nodes EvenPart(nodes, d, count), so one each if
// the numbers are equal. With fewer nodes, the same rule distributes the CPUs in node order, so that any machine can
// test several domains.
std::vector<NumaDomain> MakeNumaDomains(std::span<const NumaNode> nodes, int count);

// The `count` domains (0: one for each node) of the calling thread's nodes, to place memory in them. Empty where no
// memory is nearer: a single node, or fewer nodes than domains. PERMISSION_DENIED in containers that forbid placement.
absl::StatusOr<std::vector<NumaDomain>> DomainsToPlaceIn(int count);

// During its lifetime, the thread that made it runs on `cpus` only; then its former affinity is restored. Does nothing
// if `cpus` is empty or the kernel refuses: affinity affects speed, never results.
class ScopedAffinity {
 public:
  explicit ScopedAffinity(std::span<const int> cpus);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

 private:
  cpu_set_t former_;
  bool changed_ = false;
};

// From now on, pages that the calling thread touches first come from the domain's nodes, interleaved, and from other
// nodes only when these are full. A domain without nodes restores the system's default. Applies to shared memory too.
// PERMISSION_DENIED in containers that forbid it.
absl::Status PlaceNewPagesIn(const NumaDomain& domain);

}  // namespace moestro
