#include "services/cli/plan/simulate_experts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/experts/expert_planner.h"
#include "common/experts/replay.h"
#include "common/model/routing_trace.h"
#include "services/cli/output.h"
#include "services/cli/plan/layer_seconds.h"

namespace moestro::cli {
namespace {

using experts::Policy;
using experts::Schedule;
using nlohmann::ordered_json;

constexpr double kFp8BytesAWeight = 1;

struct Arm {
  const char* schedule;  // as moestro-decode --expert-schedule
  const char* policy;
  int64_t prefetch_layers;
  experts::ExpertPlanner::Options options;
};
const Arm kArms[] = {
    {"fixed", "first-layers", 0, {.schedule = Schedule::kFixed, .policy = Policy::kFirstLayers}},
    {"fixed", "lru", 0, {.schedule = Schedule::kFixed, .policy = Policy::kLru}},
    {"on-demand", "lru", 0, {.schedule = Schedule::kOnDemand, .policy = Policy::kLru}},
    {"on-demand", "lru", 3, {.schedule = Schedule::kOnDemand, .policy = Policy::kLru}},
    {"hybrid", "lru", 0, {.schedule = Schedule::kHybrid, .policy = Policy::kLru}},
    {"hybrid", "lfu", 0, {.schedule = Schedule::kHybrid, .policy = Policy::kLfu}},
    {"hybrid", "mrs", 0, {.schedule = Schedule::kHybrid, .policy = Policy::kMrs}},
    {"hybrid", "lru", 3, {.schedule = Schedule::kHybrid, .policy = Policy::kLru}},
    {"hybrid", "mrs", 3, {.schedule = Schedule::kHybrid, .policy = Policy::kMrs}},
};

struct Totals {
  experts::CacheCounts counts;
  int64_t passes = 0;
  int64_t tokens = 0;
};

absl::StatusOr<Totals> Replay(const SimulateExpertsFlags& flags, const LayerSeconds& seconds, const Arm& arm,
                              experts::ExpertPlanner& planner) {
  MOE_ASSIGN_OR_RETURN(const auto reader, model::RoutingTraceReader::Open(flags.recording));
  experts::ExpertReplay replay(reader->model(), arm.prefetch_layers, planner);
  Totals totals;
  model::RoutingStep step;
  while (true) {
    MOE_ASSIGN_OR_RETURN(const bool more, reader->Next(step));
    if (!more) break;
    if (!flags.prompts && std::ranges::any_of(step.tokens, &model::TracedToken::prompt)) continue;
    planner.SetCosts(seconds.Costs(std::ssize(step.tokens)));
    replay.Add(step);
    ++totals.passes;
    totals.tokens += std::ssize(step.tokens);
  }
  totals.counts = replay.counts();
  return totals;
}

ordered_json Row(const Arm& arm, double ratio, const Totals& totals) {
  const auto a_pass = [&](auto count) { return static_cast<double>(count) / static_cast<double>(totals.passes); };
  return {{"cache_ratio", ratio},
          {"schedule", arm.schedule},
          {"policy", arm.policy},
          {"prefetch_layers", arm.prefetch_layers},
          {"seconds_a_pass", a_pass(totals.counts.seconds)},
          {"tokens_per_second", static_cast<double>(totals.tokens) / totals.counts.seconds},
          {"hit_rate", totals.counts.HitRate()},
          {"loads_a_pass", a_pass(totals.counts.loads)},
          {"loads_ahead_a_pass", a_pass(totals.counts.loads_ahead)},
          {"foreseen_hits_a_pass", a_pass(totals.counts.foreseen_hits)}};
}

void PrintRows(const ordered_json& rows) {
  PrintText("held %  schedule   policy        foreseen   ms a pass  tokens/s  hits %  loads a pass  ahead   used\n");
  double ratio = -1;
  for (const ordered_json& row : rows) {
    if (ratio >= 0 && row["cache_ratio"].get<double>() != ratio) PrintText("\n");
    ratio = row["cache_ratio"].get<double>();
    PrintText(absl::StrFormat("%6.0f  %-9s  %-12s %9d %11.2f %9.1f %7.1f %13.1f %6.1f %6.1f\n", 100 * ratio,
                              row["schedule"].get<std::string>(), row["policy"].get<std::string>(),
                              row["prefetch_layers"].get<int64_t>(), 1e3 * row["seconds_a_pass"].get<double>(),
                              row["tokens_per_second"].get<double>(), 100 * row["hit_rate"].get<double>(),
                              row["loads_a_pass"].get<double>(), row["loads_ahead_a_pass"].get<double>(),
                              row["foreseen_hits_a_pass"].get<double>()));
  }
}

absl::Status CheckFits(const model::RoutingTraceModel& recorded, const weights::ModelSpec& spec,
                       const SimulateExpertsFlags& flags) {
  const auto check = [&](const char* what, int64_t is, int64_t wanted) {
    if (is == wanted) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d %s, but %s has %d; set --model to the recorded one",
                                                      flags.recording, is, what, flags.model, wanted));
  };
  MOE_RETURN_IF_ERROR(check("experts a layer", recorded.num_experts, spec.num_experts));
  MOE_RETURN_IF_ERROR(check("experts a token", recorded.experts_per_token, spec.experts_per_token));
  return check("layers with experts", recorded.moe_layers, spec.num_moe_layers());
}

}  // namespace

absl::Status SimulateExperts(const roofline::Machine& machine, const SimulateExpertsFlags& flags) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(flags.model);
  MOE_ASSIGN_OR_RETURN(const auto reader, model::RoutingTraceReader::Open(flags.recording));
  const model::RoutingTraceModel& recorded = reader->model();
  MOE_RETURN_IF_ERROR(CheckFits(recorded, spec, flags));
  const LayerSeconds seconds(machine, spec, kFp8BytesAWeight);
  ordered_json rows = ordered_json::array();
  for (const double ratio : flags.cache_ratios) {
    if (!(ratio >= 0 && ratio <= 1)) {
      return absl::InvalidArgumentError(absl::StrFormat("--cache-ratio %g: must be 0 to 1", ratio));
    }
    for (const Arm& arm : kArms) {
      if (arm.prefetch_layers > recorded.predicted_layers) continue;
      experts::ExpertPlanner::Options options = arm.options;
      options.moe_layers = recorded.moe_layers;
      options.num_experts = recorded.num_experts;
      options.slots = std::llround(ratio * static_cast<double>(recorded.num_experts));
      options.most_loads = options.policy == Policy::kFirstLayers ? 0
                           : options.schedule == Schedule::kFixed ? 1
                                                                  : recorded.num_experts;
      experts::ExpertPlanner planner(options);
      MOE_ASSIGN_OR_RETURN(const Totals totals, Replay(flags, seconds, arm, planner));
      if (totals.passes == 0) {
        return absl::InvalidArgumentError(flags.recording + ": no pass generates tokens; set --prompts");
      }
      rows.push_back(Row(arm, ratio, totals));
    }
  }
  if (flags.json) {
    PrintJson({{"hardware", machine.name},
               {"model", flags.model},
               {"load_seconds", seconds.Load()},
               {"host_seconds", seconds.Expert(machine.host, 1)},
               {"device_seconds", seconds.Expert(machine.device, 1)},
               {"schedules", rows}},
              true);
    return absl::OkStatus();
  }
  PrintText(
      absl::StrFormat("%s, FP8, on %s at full rates: an expert of one row takes %.3f ms on the CPU, %.3f on the "
                      "GPU, %.3f to load\n\n",
                      flags.model, machine.name, 1e3 * seconds.Expert(machine.host, 1),
                      1e3 * seconds.Expert(machine.device, 1), 1e3 * seconds.Load()));
  PrintRows(rows);
  if (recorded.predicted_layers == 0) {
    PrintText("\nThe recording has no predictions, so nothing is foreseen.\n");
  }
  return absl::OkStatus();
}

}  // namespace moestro::cli
