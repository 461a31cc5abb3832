#include "common/platform/cpu_split.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "common/platform/cpu_list.h"
#include "common/platform/numa.h"

namespace moestro {
namespace {

constexpr int64_t kFewCores = 2;  // of a node, for CpuSplitKind::kFewForPrefill

// The lowest hardware thread of the CPU's core, which identifies the core.
int ReadCore(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  std::string line;
  std::getline(file, line);
  const absl::StatusOr<std::vector<int>> siblings = ParseCpuList(line);
  return siblings.ok() ? siblings->front() : cpu;
}

}  // namespace

std::vector<CpuPlace> ReadCpuPlaces(std::span<const int> cpus) {
  std::map<int, int> node_of;
  for (const NumaNode& node : ReadNumaNodes(cpus)) {
    for (const int cpu : node.cpus) node_of[cpu] = node.id;
  }
  std::vector<CpuPlace> places;
  for (const int cpu : cpus) places.push_back({.cpu = cpu, .node = node_of[cpu], .core = ReadCore(cpu)});
  return places;
}

std::vector<int> OnePerCore(std::span<const CpuPlace> places) {
  std::vector<int> cpus;
  std::set<int> cores;
  for (const CpuPlace& place : places) {
    if (cores.insert(place.core).second) cpus.push_back(place.cpu);
  }
  return cpus;
}

CpuSplit SplitCpus(std::span<const CpuPlace> places, CpuSplitKind kind) {
  std::map<int, std::set<int>> cores_of;  // by node
  std::set<int> cores;
  for (const CpuPlace& place : places) {
    cores_of[place.node].insert(place.core);
    cores.insert(place.core);
  }
  const bool single_cores = std::ranges::all_of(cores_of, [](const auto& node) { return node.second.size() == 1; });

  CpuSplit split;
  for (const CpuPlace& place : places) {
    const std::set<int>& among = single_cores ? cores : cores_of[place.node];
    const auto index = std::distance(among.begin(), among.find(place.core)), count = std::ssize(among);
    const bool decodes =
        kind == CpuSplitKind::kHalves || count < 2 * kFewCores ? index % 2 == 0 : index < count - kFewCores;
    if (decodes) split.decode.push_back(place.cpu);
    if (!decodes || cores.size() == 1) split.prefill.push_back(place.cpu);
  }
  std::ranges::sort(split.decode);
  std::ranges::sort(split.prefill);
  return split;
}

}  // namespace moestro
