#include "common/platform/numa.h"

#include <numa.h>
#include <numaif.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "common/base/math.h"
#include "common/base/status.h"

namespace moestro {
namespace {

struct FreeBitmask {
  void operator()(bitmask* mask) const { numa_bitmask_free(mask); }
};
using Bitmask = std::unique_ptr<bitmask, FreeBitmask>;

}  // namespace

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
    return cpus;
  }
  // More CPUs than cpu_set_t holds (1024).
  cpus.resize(std::max(1u, std::thread::hardware_concurrency()));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

std::vector<NumaNode> ReadNumaNodes() { return ReadNumaNodes(AllowedCpus()); }

std::vector<NumaNode> ReadNumaNodes(std::span<const int> wanted) {
  std::vector<NumaNode> nodes;
  const bool knows_nodes = numa_available() >= 0;
  for (int id = 0; knows_nodes && id <= numa_max_node(); ++id) {
    const Bitmask cpus(numa_allocate_cpumask());
    if (numa_node_to_cpus(id, cpus.get()) != 0) continue;
    NumaNode node{id, {}};
    std::ranges::copy_if(wanted, std::back_inserter(node.cpus),
                         [&](int cpu) { return numa_bitmask_isbitset(cpus.get(), static_cast<unsigned>(cpu)) != 0; });
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  if (nodes.empty()) nodes.push_back({0, {wanted.begin(), wanted.end()}});
  return nodes;
}

std::vector<NumaDomain> MakeNumaDomains(std::span<const NumaNode> nodes, int count) {
  std::vector<NumaDomain> domains(static_cast<size_t>(count));
  const auto append = [](std::vector<int>& to, std::span<const int> from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  if (nodes.size() >= domains.size()) {
    for (int d = 0; d < count; ++d) {
      const IndexRange part = EvenPart(static_cast<int64_t>(nodes.size()), d, count);
      for (const NumaNode& node : nodes.subspan(part.begin, part.size())) {
        append(domains[d].cpus, node.cpus);
        domains[d].nodes.push_back(node.id);
      }
    }
    return domains;
  }
  std::vector<int> cpus;
  for (const NumaNode& node : nodes) append(cpus, node.cpus);
  for (int d = 0; d < count; ++d) {
    const IndexRange part = EvenPart(static_cast<int64_t>(cpus.size()), d, count);
    append(domains[d].cpus, std::span(cpus).subspan(part.begin, part.size()));
  }
  return domains;
}

ScopedAffinity::ScopedAffinity(std::span<const int> cpus) {
  if (cpus.empty() || sched_getaffinity(0, sizeof(former_), &former_) != 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  changed_ = sched_setaffinity(0, sizeof(set), &set) == 0;
}

ScopedAffinity::~ScopedAffinity() {
  if (changed_) sched_setaffinity(0, sizeof(former_), &former_);
}

absl::Status PlaceNewPagesIn(const NumaDomain& domain) {
  long result = 0;
  if (domain.nodes.empty()) {
    result = set_mempolicy(MPOL_DEFAULT, nullptr, 0);
  } else {
    const Bitmask mask(numa_allocate_nodemask());
    for (const int node : domain.nodes) numa_bitmask_setbit(mask.get(), static_cast<unsigned>(node));
    // MPOL_INTERLEAVE over one or more nodes falls back to other nodes when these are full. The kernel reads one bit
    // less than the size given.
    result = set_mempolicy(MPOL_INTERLEAVE, mask->maskp, mask->size + 1);
  }
  return result == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "set_mempolicy");
}

absl::StatusOr<std::vector<NumaDomain>> DomainsToPlaceIn(int count) {
  const std::vector<NumaNode> nodes = ReadNumaNodes();
  const size_t wanted = count > 0 ? static_cast<size_t>(count) : nodes.size();
  if (nodes.size() == 1 || wanted > nodes.size()) return std::vector<NumaDomain>{};
  std::vector<NumaDomain> domains = MakeNumaDomains(nodes, static_cast<int>(wanted));
  MOE_RETURN_IF_ERROR(PlaceNewPagesIn(domains.front()));
  MOE_RETURN_IF_ERROR(PlaceNewPagesIn({}));
  return domains;
}

}  // namespace moestro
