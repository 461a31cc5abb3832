// `moestro routing`: evaluates a recording of the experts that tokens were routed to (common/model/ROUTING_TRACE.md).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/experts/replay.h"
#include "common/model/routing_trace.h"
#include "common/process/flag_check.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct RoutingFlags {
  std::string file;
  std::vector<int64_t> cache_experts;
  int64_t cache_loads = 1;
  bool prompts = false;
  bool json = false;
};

// Counts over all passes and layers.
class RoutingSummary {
 public:
  explicit RoutingSummary(const model::RoutingTraceModel& model)
      : model_(model), uses_(static_cast<size_t>(model.moe_layers * model.num_experts)) {}

  void Add(const model::RoutingStep& step) {
    ++passes_;
    for (const model::TracedToken& token : step.tokens) ++(token.prompt ? prompt_tokens_ : generated_tokens_);
    std::vector<bool> seen(uses_.size());
    for (size_t i = 0; i < step.choices.size(); ++i) {
      const size_t layer = i / static_cast<size_t>(model_.experts_per_token) % static_cast<size_t>(model_.moe_layers);
      const size_t expert =
          layer * static_cast<size_t>(model_.num_experts) + static_cast<size_t>(step.choices[i].expert);
      ++uses_[expert];
      if (!seen[expert]) ++different_;
      seen[expert] = true;
    }
  }

  nlohmann::ordered_json Json() const {
    const int64_t tokens = prompt_tokens_ + generated_tokens_;
    const auto choices = static_cast<double>(tokens * model_.choices_per_token());
    return {{"fingerprint", model_.fingerprint},
            {"first_moe_layer", model_.first_moe_layer},
            {"moe_layers", model_.moe_layers},
            {"experts", model_.num_experts},
            {"experts_per_token", model_.experts_per_token},
            {"passes", passes_},
            {"prompt_tokens", prompt_tokens_},
            {"generated_tokens", generated_tokens_},
            {"different_experts_per_pass_and_layer",
             Ratio(static_cast<double>(different_), static_cast<double>(passes_ * model_.moe_layers))},
            {"share_of_the_hottest_tenth", Ratio(HottestTenth(), choices)}};
  }

 private:
  static double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

  // Choices that fall on the most chosen tenth of each layer's experts.
  double HottestTenth() const {
    const int64_t tenth = std::max<int64_t>(1, model_.num_experts / 10);
    int64_t sum = 0;
    for (int64_t layer = 0; layer < model_.moe_layers; ++layer) {
      const auto begin = uses_.begin() + layer * model_.num_experts;
      std::vector<int64_t> uses(begin, begin + model_.num_experts);
      std::ranges::partial_sort(uses, uses.begin() + tenth, std::greater<>());
      for (int64_t i = 0; i < tenth; ++i) sum += uses[static_cast<size_t>(i)];
    }
    return static_cast<double>(sum);
  }

  const model::RoutingTraceModel& model_;
  int64_t passes_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  int64_t different_ = 0;      // experts, summed over passes and layers
  std::vector<int64_t> uses_;  // [moe_layers, num_experts]
};

// Hits and loads of caches of these sizes.
absl::StatusOr<nlohmann::ordered_json> Caches(const RoutingFlags& flags, const model::RoutingTraceModel& model) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int64_t slots : flags.cache_experts) {
    MOE_RETURN_IF_ERROR(CheckFlagRange("--cache-experts", slots, 0, model.num_experts));
    MOE_ASSIGN_OR_RETURN(const auto reader, model::RoutingTraceReader::Open(flags.file));
    experts::ExpertPlanner planner({.moe_layers = model.moe_layers,
                                    .num_experts = model.num_experts,
                                    .slots = slots,
                                    .most_loads = flags.cache_loads});
    MOE_ASSIGN_OR_RETURN(const experts::CacheCounts counts, experts::ReplayExperts(*reader, flags.prompts, planner));
    rows.push_back({{"experts_a_layer", slots},
                    {"policy", "lru"},
                    {"hit_rate", counts.HitRate()},
                    {"row_hit_rate", counts.RowHitRate()},
                    {"loads", counts.loads}});
  }
  return rows;
}

absl::Status Routing(const RoutingFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const auto reader, model::RoutingTraceReader::Open(flags.file));
  RoutingSummary summary(reader->model());
  model::RoutingStep step;
  while (true) {
    MOE_ASSIGN_OR_RETURN(const bool more, reader->Next(step));
    if (!more) break;
    summary.Add(step);
  }
  nlohmann::ordered_json json = summary.Json();
  if (!flags.cache_experts.empty()) {
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

void AddRoutingCommand(CLI::App& app, std::vector<Command>& commands) {
  const auto flags = std::make_shared<RoutingFlags>();
  CLI::App* command = app.add_subcommand(
      "routing", "Evaluate a recording of the experts that tokens were routed to (moestro-decode --routing-trace)");
  command->add_option("file", flags->file, "The recording")->required();
  command
      ->add_option("--cache-experts", flags->cache_experts,
                   "Replay a cache of this many experts per layer, empty at first; separate several sizes by commas")
      ->delimiter(',');
  command->add_option("--cache-loads", flags->cache_loads, "Most missed experts that a pass loads per layer")
      ->check(CLI::Range(0, 65535));
  command->add_flag("--prompts", flags->prompts, "Also replay passes that compute prompts");
  command->add_flag("--json", flags->json, "JSON");
  commands.push_back({command, [flags] { return Routing(*flags); }});
}

}  // namespace moestro::cli
