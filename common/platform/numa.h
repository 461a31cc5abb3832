// NUMA domains: which CPUs compute on which memory. All functions respect the affinity mask that the calling thread was
// given (taskset, cpusets of containers) and work on machines without NUMA.
#pragma once

#include <sched.h>

#include <span>
#include <vector>

#include "absl/status/status.h"

namespace moestro {

struct NumaNode {
  int id = 0;             // the kernel's number
  std::vector<int> cpus;  // those of this node that were asked for; ascending
};

// Nodes with CPUs that the calling thread may use, ascending; at least one. Where the kernel tells nothing about nodes
// (or a container forbids asking: Docker's default profile does without CAP_SYS_NICE), one node 0 with all CPUs.
std::vector<NumaNode> ReadNumaNodes();
// The same for the given CPUs, ascending, whether the calling thread may use them or not.
std::vector<NumaNode> ReadNumaNodes(std::span<const int> cpus);

// CPUs that the calling thread may use, ascending; never empty.
std::vector<int> AllowedCpus();

// A part of the machine whose threads compute on memory of their own.
struct NumaDomain {
  std::vector<int> cpus;   // empty when there are fewer CPUs than domains
  std::vector<int> nodes;  // whose memory is the domain's; empty when domains share a node: then no memory is nearer
};

// `count` domains. With at least as many nodes, domain d gets the nodes EvenPart(nodes, d, count): one each when the
// numbers are equal. With fewer nodes (so that several domains can be tested on any machine) the CPUs are dealt out by
// the same rule, in the order of the nodes.
std::vector<NumaDomain> MakeNumaDomains(std::span<const NumaNode> nodes, int count);

// While it lives, the thread that made it runs on `cpus` only; then its former affinity is back. Nothing happens if
// `cpus` is empty or the kernel refuses: affinity is about speed, never about results.
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

// Pages that the calling thread touches first from now on come from the domain's nodes, from all of them in turn; from
// elsewhere only when these are full. A domain without nodes: the system's default. Holds for memory shared between
// processes as well. PERMISSION_DENIED in containers that forbid it.
absl::Status PlaceNewPagesIn(const NumaDomain& domain);

}  // namespace moestro
