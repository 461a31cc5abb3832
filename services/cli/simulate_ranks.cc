#include "services/cli/simulate_ranks.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "services/cli/output.h"
#include "services/cli/paper_claims.h"
#include "services/cli/published_models.h"
#include "services/prefill/distributed/simulate_ranks.h"

namespace moestro {
namespace {

using Json = nlohmann::ordered_json;

// "Cloud-grade SLOs for local MoE": figure 3, 20K tokens on 2 devices, and sections 3.2 and 4.2.
constexpr int kPaperRanks = 2;
constexpr int64_t kPaperTokens = 20 * 1024;
constexpr double kPaperStandardLayer = 1 - 0.21;                       // of one device's layer
constexpr double kPaperSmallLayer = kPaperStandardLayer * (1 - 0.18);  // "further"
constexpr double kPaperExchangeShare = 0.31;                           // of standard EP's layer: dispatch and combine
constexpr double kPaperSpeedup = 1.64;                                 // of SmallEP over one device, 20K to 32K tokens
constexpr int64_t kPaperLongTokens = 45'000;
constexpr double kPaperLongSeconds = 30;

constexpr DType kWeights = DType::kF8E4M3;
constexpr MlaForm kForm = MlaForm::kUnabsorbed;

struct Way {
  std::string name;
  int ranks;
  ExpertParallelism experts;
};

std::vector<Way> Ways(int ranks) {
  return {{"one device", 1, ExpertParallelism::kSmall},
          {absl::StrFormat("CP%d+EP%d", ranks, ranks), ranks, ExpertParallelism::kStandard},
          {absl::StrFormat("CP%d+SmallEP%d", ranks, ranks), ranks, ExpertParallelism::kSmall}};
}

struct Simulated {
  double seconds = 0;
  double imbalance = 1;
  int64_t exchanged_bytes = 0;  // over rank 0's link, both directions
  Timeline timeline;            // of rank 0
};

absl::StatusOr<Simulated> Simulate(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                   const MemoryLimits& limits, int64_t tokens, const Way& way) {
  if (way.ranks == 1) {
    MOE_ASSIGN_OR_RETURN(SimulatedPrefill one, SimulatePrefill(hardware, spec, kWeights, kForm, tokens, limits));
    return Simulated{one.report.counters.wall_seconds, 1, 0, std::move(one.report.timeline)};
  }
  MOE_ASSIGN_OR_RETURN(SimulatedRanks many,
                       SimulateRanks(hardware, spec, kWeights, kForm, tokens, limits, way.ranks, way.experts));
  Simulated result{many.wall_seconds, many.imbalance, 0, std::move(many.ranks[0].pipeline.timeline)};
  for (const collective::OperationCounters& counters : many.ranks[0].exchanges) {
    result.exchanged_bytes += counters.sent_bytes + counters.received_bytes;
  }
  return result;
}

// Mean seconds of a layer with experts, by step, in the order of steps; "layer": from its first step to the next
// layer's.
std::map<std::string, double> LayerSeconds(const ModelSpec& spec, const Timeline& timeline) {
  std::map<std::string, double> seconds;
  double first = 0;
  double last = 0;
  for (const Span& span : timeline.lanes[Timeline::kModel]) {
    if (span.layer < spec.first_dense_layers || span.layer >= spec.num_layers) continue;
    if (first == 0) first = span.begin;
    last = span.end;
    seconds[span.name] += span.end - span.begin;
  }
  const auto layers = static_cast<double>(spec.num_layers - spec.first_dense_layers);
  for (auto& [name, sum] : seconds) sum /= layers;
  seconds["layer"] = (last - first) / layers;
  return seconds;
}

// A prompt of this length on one device, and on `ranks` with standard EP and with SmallEP. RESOURCE_EXHAUSTED names the
// way in which it does not fit.
absl::StatusOr<Json> CompareRanks(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                  const MemoryLimits& limits, int64_t tokens, int ranks) {
  Json row = {{"tokens", tokens}, {"ranks", ranks}};
  double one = 0;
  for (const Way& way : Ways(ranks)) {
    const absl::StatusOr<Simulated> simulated = Simulate(hardware, spec, limits, tokens, way);
    MOE_RETURN_IF_ERROR(Annotate(simulated.status(), way.name));
    if (way.ranks == 1) one = simulated->seconds;
    row["ways"].push_back({{"way", way.name},
                           {"ttft_seconds", simulated->seconds},
                           {"tokens_per_second", static_cast<double>(tokens) / simulated->seconds},
                           {"speedup", one / simulated->seconds},
                           {"exchanged_bytes", simulated->exchanged_bytes}});
    row["attention_imbalance"] = simulated->imbalance;
  }
  return row;
}

// Lengths that were compared, and those that do not fit the devices.
struct Lengths {
  Json rows = Json::array();
  Json skipped = Json::array();
};

// An error if none of them fits.
absl::StatusOr<Lengths> CompareLengths(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                       const MemoryLimits& limits, const std::vector<int64_t>& tokens, int ranks) {
  Lengths lengths;
  absl::Status too_long;
  for (const int64_t count : tokens) {
    absl::StatusOr<Json> row = CompareRanks(hardware, spec, limits, count, ranks);
    if (row.ok()) {
      lengths.rows.push_back(*std::move(row));
      continue;
    }
    if (!absl::IsResourceExhausted(row.status())) return row.status();
    too_long = row.status();
    lengths.skipped.push_back({{"tokens", count}, {"why", std::string(too_long.message())}});
  }
  if (lengths.rows.empty()) return too_long;
  return lengths;
}

// What a layer with experts takes, step by step, in each of these ways. RESOURCE_EXHAUSTED if such a prompt does not
// fit.
absl::StatusOr<Json> LayerBreakdown(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                    const MemoryLimits& limits, int64_t tokens, int ranks) {
  Json ways = Json::array();
  for (const Way& way : Ways(ranks)) {
    const absl::StatusOr<Simulated> simulated = Simulate(hardware, spec, limits, tokens, way);
    MOE_RETURN_IF_ERROR(Annotate(simulated.status(), way.name));
    Json steps = Json::object();
    const std::map<std::string, double> seconds = LayerSeconds(spec, simulated->timeline);
    for (const StepKind kind : {StepKind::kAttention, StepKind::kRoute, StepKind::kDispatch, StepKind::kExperts,
                                StepKind::kCombine, StepKind::kSharedExpert}) {
      const auto step = seconds.find(StepName(kind));
      if (step != seconds.end()) steps[step->first] = step->second;
    }
    ways.push_back({{"way", way.name}, {"tokens", tokens}, {"layer_seconds", seconds.at("layer")}, {"steps", steps}});
  }
  return ways;
}

// The paper's figures for two devices.
absl::StatusOr<Json> CompareRanksWithPaper(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                           const MemoryLimits& limits) {
  Json claims = Json::array();
  const auto add = [&](const std::string& what, double paper, double here) {
    claims.push_back(Claim(what, paper, here));
  };
  MOE_ASSIGN_OR_RETURN(const Json layers, LayerBreakdown(hardware, spec, limits, kPaperTokens, kPaperRanks));
  const auto layer = [&](size_t way) { return layers[way]["layer_seconds"].get<double>(); };
  add("layer, CP2+EP2 / one device, 20K tokens", kPaperStandardLayer, layer(1) / layer(0));
  add("layer, CP2+SmallEP2 / one device, 20K tokens", kPaperSmallLayer, layer(2) / layer(0));
  const Json& standard = layers[1]["steps"];
  add("dispatch and combine / layer, CP2+EP2", kPaperExchangeShare,
      (standard["dispatch"].get<double>() + standard["combine"].get<double>()) / layer(1));
  const auto seconds = [&](int64_t tokens, size_t way) -> absl::StatusOr<double> {
    MOE_ASSIGN_OR_RETURN(const Simulated simulated, Simulate(hardware, spec, limits, tokens, Ways(kPaperRanks)[way]));
    return simulated.seconds;
  };
  for (const int64_t kibitokens : {20, 32}) {
    MOE_ASSIGN_OR_RETURN(const double one, seconds(kibitokens * 1024, 0));
    MOE_ASSIGN_OR_RETURN(const double two, seconds(kibitokens * 1024, 2));
    add(absl::StrFormat("CP2+SmallEP2 times as fast, %dK tokens", kibitokens), kPaperSpeedup, one / two);
  }
  MOE_ASSIGN_OR_RETURN(const double of45k, seconds(kPaperLongTokens, 2));
  add("seconds, 45K tokens on 2 devices (at most)", kPaperLongSeconds, of45k);
  return claims;
}

void PrintRanks(const Json& rows) {
  PrintText("  tokens  way                TTFT s  tokens/s  speedup  exchanged GB  attention imbalance\n");
  for (const auto& row : rows) {
    for (const auto& way : row["ways"]) {
      PrintText(absl::StrFormat("%8d  %-16s %8.2f %9.0f %8.2f %13.1f %20.3f\n", row["tokens"].get<int64_t>(),
                                way["way"].get<std::string>(), way["ttft_seconds"].get<double>(),
                                way["tokens_per_second"].get<double>(), way["speedup"].get<double>(),
                                way["exchanged_bytes"].get<double>() / 1e9, row["attention_imbalance"].get<double>()));
    }
  }
}

void PrintSkipped(const Json& skipped) {
  for (const auto& length : skipped) {
    PrintText(absl::StrFormat("%8d  skipped: %s\n", length["tokens"].get<int64_t>(), length["why"].get<std::string>()));
  }
}

void PrintLayerBreakdown(const Json& ways) {
  PrintText(absl::StrFormat("\nA layer with experts, %d tokens, ms\n", ways[0]["tokens"].get<int64_t>()));
  for (const auto& way : ways) {
    PrintText(
        absl::StrFormat("  %-16s %7.1f:", way["way"].get<std::string>(), 1e3 * way["layer_seconds"].get<double>()));
    for (const auto& [step, seconds] : way["steps"].items()) {
      PrintText(absl::StrFormat("  %s %.1f", step, 1e3 * seconds.get<double>()));
    }
    PrintText("\n");
  }
}

}  // namespace

absl::Status SimulateSeveral(const device::HardwareSpec& hardware, const SimulateRanksFlags& flags) {
  const ModelSpec spec = PublishedModel(flags.model);
  MOE_ASSIGN_OR_RETURN(Lengths lengths, CompareLengths(hardware, spec, flags.limits, flags.tokens, flags.ranks));
  absl::StatusOr<Json> layer = LayerBreakdown(hardware, spec, flags.limits, kPaperTokens, flags.ranks);
  if (absl::IsResourceExhausted(layer.status())) {
    // Nobody asked for this length: shorter ones stand without it.
    const absl::Status why = Annotate(layer.status(), "a layer with experts");
    lengths.skipped.push_back({{"tokens", kPaperTokens}, {"why", std::string(why.message())}});
    layer = Json::array();
  }
  MOE_RETURN_IF_ERROR(layer.status());
  Json claims = Json::array();
  if (flags.paper) {
    absl::StatusOr<Json> compared = CompareRanksWithPaper(hardware, PublishedModel("deepseek-v3"), flags.limits);
    MOE_RETURN_IF_ERROR(Annotate(compared.status(), "--paper"));
    claims = *std::move(compared);
  }
  if (flags.json) {
    PrintJson({{"hardware", hardware.name},
               {"model", flags.model},
               {"ranks", flags.ranks},
               {"prefill", lengths.rows},
               {"skipped", lengths.skipped},
               {"layer", *layer},
               {"paper", claims}},
              true);
    return absl::OkStatus();
  }
  PrintText(absl::StrFormat("%s, FP8, streamed on %d devices: %s\n", flags.model, flags.ranks, hardware.name));
  PrintRanks(lengths.rows);
  PrintSkipped(lengths.skipped);
  if (!layer->empty()) PrintLayerBreakdown(*layer);
  if (flags.paper) PrintClaims(claims);
  return absl::OkStatus();
}

}  // namespace moestro
