#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/kv/format.h"
#include "common/platform/instance.h"
#include "common/platform/shared_memory.h"
#include "common/report/number.h"
#include "common/weights/format.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct SegmentsFlags {
  std::string instance = "default";
  bool all = false;
  bool json = false;
};

absl::StatusOr<std::vector<SharedMemory::Listing>> List(const SegmentsFlags& flags) {
  if (!flags.all) MOE_RETURN_IF_ERROR(Annotate(ValidateInstanceName(flags.instance), "--instance"));
  std::vector<std::string> foreign;
  auto listings = SharedMemory::List(flags.all ? kSharedMemoryPrefix : InstancePrefix(flags.instance), &foreign);
  for (const std::string& line : foreign) std::fprintf(stderr, "warning: %s\n", line.c_str());
  return listings;
}

// The object's type by its own header. The object may change or vanish at any moment, so nothing in it is trusted.
std::string State(const SharedMemory::Listing& listing) {
  const absl::StatusOr<SharedMemory> memory = SharedMemory::OpenReadOnly(listing.name);
  if (absl::IsNotFound(memory.status())) return "incomplete";
  if (absl::IsUnavailable(memory.status())) return "damaged";
  if (!memory.ok()) return "unreadable";
  uint64_t magic = 0;
  if (memory->size() >= static_cast<int64_t>(sizeof(magic))) std::memcpy(&magic, memory->data(), sizeof(magic));
  if (magic == kv::kKvPoolMagic) return "kv pool";
  if (magic != weights::kSegmentMagic || memory->size() < static_cast<int64_t>(sizeof(weights::SegmentHeader)))
    return "unknown";
  const auto* header = reinterpret_cast<const weights::SegmentHeader*>(memory->data());
  switch (static_cast<weights::SegmentState>(header->state.load(std::memory_order_acquire))) {
    case weights::SegmentState::kLoading: {
      const double share = header->data_bytes > 0 ? static_cast<double>(header->loaded_bytes.load()) /
                                                        static_cast<double>(header->data_bytes)
                                                  : 0;
      return absl::StrFormat("weights, loading %.0f %%", 100 * share);
    }
    case weights::SegmentState::kReady:
      return "weights, ready";
    case weights::SegmentState::kFailed:
      return "weights, failed";
  }
  return "weights, incomplete";
}

absl::Status ListSegments(const SegmentsFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::vector<SharedMemory::Listing> listings, List(flags));
  nlohmann::json json = nlohmann::json::array();
  if (!flags.json)
    PrintText(
        absl::StrFormat("%-52s %12s %12s  %-6s %-8s %s\n", "NAME", "SIZE", "MEMORY", "OWNER", "ATTACHED", "STATE"));
  for (const SharedMemory::Listing& listing : listings) {
    const std::string state = State(listing);
    json.push_back({{"name", listing.name},
                    {"bytes", listing.bytes},
                    {"memory_bytes", listing.memory_bytes},
                    {"owner_alive", listing.owner_alive},
                    {"attached", listing.attached},
                    {"state", state}});
    if (flags.json) continue;
    PrintText(absl::StrFormat("%-52s %12s %12s  %-6s %-8s %s\n", listing.name, HumanBytes(listing.bytes),
                              HumanBytes(listing.memory_bytes), listing.owner_alive ? "alive" : "gone",
                              listing.attached ? "yes" : "no", state));
  }
  if (flags.json) PrintJson(json, /*indent=*/true);
  return absl::OkStatus();
}

absl::Status PruneSegments(const SegmentsFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::vector<SharedMemory::Listing> listings, List(flags));
  nlohmann::json removed = nlohmann::json::array();
  int64_t freed = 0;
  for (const SharedMemory::Listing& listing : listings) {
    MOE_ASSIGN_OR_RETURN(const bool gone, SharedMemory::UnlinkIfUnused(listing.name));
    if (!gone) continue;
    freed += listing.memory_bytes;
    removed.push_back({{"name", listing.name}, {"bytes", listing.memory_bytes}});
    if (!flags.json) PrintText(absl::StrFormat("removed %s (%s)\n", listing.name, HumanBytes(listing.memory_bytes)));
  }
  if (flags.json) {
    PrintJson({{"removed", removed}, {"freed_bytes", freed}}, /*indent=*/true);
  } else {
    PrintText(absl::StrFormat("%d removed, %s freed\n", removed.size(), HumanBytes(freed)));
  }
  return absl::OkStatus();
}

void AddFlags(FlagSet& command, SegmentsFlags& flags) {
  Flag instance = command.Add("--instance", flags.instance, "Node that owns the objects");
  command.AddSwitch("--all", flags.all, "The objects of every node on this machine").Excludes(instance);
  command.AddSwitch("--json", flags.json, "JSON");
}

}  // namespace

void AddSegmentsCommands(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<SegmentsFlags>();
  FlagSet segments = program.AddCommand("segments", "Shared-memory objects: weights and KV pools");
  segments.RequireCommands(1, 1);
  FlagSet list = segments.AddCommand("list", "Sizes, owners and states");
  AddFlags(list, *flags);
  commands.push_back({list, [flags] { return ListSegments(*flags); }});
  FlagSet prune = segments.AddCommand("prune", "Remove objects that no process owns or uses");
  AddFlags(prune, *flags);
  commands.push_back({prune, [flags] { return PruneSegments(*flags); }});
}

}  // namespace moestro::cli
