// `moestro routing`: evaluates a recording of the experts that tokens were routed to (common/model/ROUTING_TRACE.md).
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/experts/replay.h"
#include "common/experts/routing_statistics.h"
#include "common/model/routing_trace.h"
#include "common/process/flag_check.h"
#include "services/cli/command.h"
#include "services/cli/output.h"
#include "services/cli/routing/trace_commands.h"

namespace moestro::cli {
namespace {

const std::map<std::string, experts::Policy> kPolicies = {
    {"lru", experts::Policy::kLru}, {"lfu", experts::Policy::kLfu}, {"mrs", experts::Policy::kMrs}};

struct RoutingFlags {
  std::string file;
  std::vector<int64_t> cache_experts;
  std::vector<std::string> policies = {"lru"};
  int64_t cache_loads = 1;
  bool prompts = false;
  bool json = false;
};

nlohmann::ordered_json Json(const model::RoutingTraceModel& model, const experts::RoutingStatistics& statistics) {
  nlohmann::ordered_json json{{"fingerprint", model.fingerprint},
                              {"first_moe_layer", model.first_moe_layer},
                              {"moe_layers", model.moe_layers},
                              {"experts", model.num_experts},
                              {"experts_per_token", model.experts_per_token},
                              {"scores_per_token", model.scores_per_token},
                              {"passes", statistics.passes()},
                              {"prompt_tokens", statistics.prompt_tokens()},
                              {"generated_tokens", statistics.generated_tokens()},
                              {"different_experts_per_pass_and_layer", statistics.DifferentExperts()},
                              {"share_of_the_hottest_tenth", statistics.HottestTenth()},
                              {"share_of_the_coldest_70_percent", statistics.ColdShare()},
                              {"moving_average_accuracy", statistics.AverageAccuracy()}};
  for (int64_t ahead = 1; ahead <= model.predicted_layers; ++ahead) {
    json[absl::StrFormat("foreseen_%d_layers_before", ahead)] = statistics.Foreseen(ahead);
  }
  return json;
}

// Hits and loads of caches of these sizes.
absl::StatusOr<nlohmann::ordered_json> Caches(const RoutingFlags& flags, const model::RoutingTraceModel& model) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int64_t slots : flags.cache_experts) {
    MOE_RETURN_IF_ERROR(CheckFlagRange("--cache-experts", slots, 0, model.num_experts));
    for (const std::string& policy : flags.policies) {
      MOE_ASSIGN_OR_RETURN(const auto reader, model::RoutingTraceReader::Open(flags.file));
      experts::ExpertPlanner planner({.moe_layers = model.moe_layers,
                                      .num_experts = model.num_experts,
                                      .slots = slots,
                                      .most_loads = flags.cache_loads,
                                      .policy = kPolicies.at(policy)});
      MOE_ASSIGN_OR_RETURN(const experts::CacheCounts counts,
                           experts::ReplayExperts(*reader, flags.prompts, /*prefetch_layers=*/0, planner));
      rows.push_back({{"experts_a_layer", slots},
                      {"policy", policy},
                      {"hit_rate", counts.HitRate()},
                      {"row_hit_rate", counts.RowHitRate()},
                      {"loads", counts.loads}});
    }
  }
  return rows;
}

absl::Status Routing(const RoutingFlags& flags) {
  if (flags.file.empty()) return absl::InvalidArgumentError("routing: name a recording, or make, fit or import");
  MOE_ASSIGN_OR_RETURN(const auto reader, model::RoutingTraceReader::Open(flags.file));
  experts::RoutingStatistics statistics(reader->model());
  model::RoutingStep step;
  while (true) {
    MOE_ASSIGN_OR_RETURN(const bool more, reader->Next(step));
    if (!more) break;
    statistics.Add(step);
  }
  nlohmann::ordered_json json = Json(reader->model(), statistics);
  if (!flags.cache_experts.empty()) {
    if (reader->model().scores_per_token == 0 && std::ranges::find(flags.policies, "mrs") != flags.policies.end()) {
      PrintText("note: the recording has no scores of experts that were nearly chosen; mrs sees chosen ones only\n");
    }
    MOE_ASSIGN_OR_RETURN(json["caches"], Caches(flags, reader->model()));
  }
  if (flags.json) {
    PrintJson(json, true);
    return absl::OkStatus();
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "caches") continue;
    PrintText(absl::StrFormat("%-38s %s\n", key, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  if (!json.contains("caches")) return absl::OkStatus();
  PrintText("\ncached experts a layer  policy  hits %  of rows %  loads\n");
  for (const auto& row : json["caches"]) {
    PrintText(absl::StrFormat("%22d  %-6s %7.1f %10.1f %6d\n", row["experts_a_layer"].get<int64_t>(),
                              row["policy"].get<std::string>(), 100 * row["hit_rate"].get<double>(),
                              100 * row["row_hit_rate"].get<double>(), row["loads"].get<int64_t>()));
  }
  return absl::OkStatus();
}

}  // namespace

void AddRoutingCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<RoutingFlags>();
  FlagSet command = program.AddCommand(
      "routing",
      "Evaluate a recording of the experts that tokens were routed to (moestro-decode --routing-trace), or make one");
  command.RequireCommands(0, 1);
  command.Add("file", flags->file, "The recording");
  command
      .Add("--cache-experts", flags->cache_experts,
           "Replay a cache of this many experts per layer, empty at first; separate several sizes by commas")
      .Delimiter(',');
  command
      .Add("--policies", flags->policies,
           "Which expert makes room for another: lru: the one used longest ago; lfu: the one used least often; "
           "mrs: the one with the smallest average of recent scores; separate several by commas")
      .Delimiter(',')
      .OneOf({"lru", "lfu", "mrs"});
  command.Add("--cache-loads", flags->cache_loads, "Most missed experts that a pass loads per layer").Range(0, 65535);
  command.AddSwitch("--prompts", flags->prompts, "Also replay passes that compute prompts");
  command.AddSwitch("--json", flags->json, "JSON");
  std::vector<Command> writers;
  AddTraceCommands(command, writers);
  commands.push_back({command, [flags, writers] {
                        for (const Command& writer : writers) {
                          if (writer.flags.WasGiven()) return writer.run();
                        }
                        return Routing(*flags);
                      }});
}

}  // namespace moestro::cli
