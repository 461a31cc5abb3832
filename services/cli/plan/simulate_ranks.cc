#include "services/cli/plan/simulate_ranks.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "services/cli/model/inspect.h"
#include "services/cli/output.h"
#include "services/cli/plan/paper_claims.h"
#include "services/prefill/distributed/simulate_ranks.h"

namespace moestro::cli {
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
constexpr model::MlaForm kForm = model::MlaForm::kUnabsorbed;

struct Way {
  std::string name;
  int ranks;
  roofline::ExpertParallelism experts;
};

std::vector<Way> Ways(int ranks) {
  return {{"one device", 1, roofline::ExpertParallelism::kSmall},
          {absl::StrFormat("CP%d+EP%d", ranks, ranks), ranks, roofline::ExpertParallelism::kStandard},
          {absl::StrFormat("CP%d+SmallEP%d", ranks, ranks), ranks, roofline::ExpertParallelism::kSmall}};
}

struct Simulated {
  double seconds = 0;
  int64_t passes = 1;
  double imbalance = 1;
  int64_t exchanged_bytes = 0;       // over rank 0's link, both directions
  double exchange_seconds = 0;       // while exchanges were under way
  double exchange_wait_seconds = 0;  // of that, with nothing else to do
  prefill::Timeline timeline;        // of rank 0
};

// The settings that all prompts of a comparison share.
struct Setting {
  const device::HardwareSpec& hardware;
  weights::ModelSpec spec;
  prefill::MemoryLimits limits;
  engine::CostOptions costs;
  int ranks;
};

absl::StatusOr<Simulated> Simulate(const Setting& setting, int64_t tokens, const Way& way) {
  const auto& [hardware, spec, limits, costs, ranks] = setting;
  if (way.ranks == 1) {
    MOE_ASSIGN_OR_RETURN(prefill::SimulatedPrefill one,
                         prefill::SimulatePrefill(hardware, spec, kWeights, kForm, tokens, limits, costs));
    const prefill::StreamCounters& counters = one.report.counters;
    return Simulated{
        .seconds = counters.wall_seconds, .passes = counters.passes, .timeline = std::move(one.report.timeline)};
  }
  MOE_ASSIGN_OR_RETURN(prefill::SimulatedRanks many, prefill::SimulateRanks(hardware, spec, kWeights, kForm, tokens,
                                                                            limits, way.ranks, way.experts, costs));
  Simulated result{.seconds = many.wall_seconds,
                   .passes = many.passes,
                   .imbalance = many.imbalance,
                   .exchange_seconds = many.exchange_seconds,
                   .exchange_wait_seconds = many.exchange_wait_seconds,
                   .timeline = std::move(many.ranks[0].pipeline.timeline)};
  for (const collective::OperationCounters& counters : many.ranks[0].exchanges) {
    result.exchanged_bytes += counters.sent_bytes + counters.received_bytes;
  }
  return result;
}

// One prompt in each way. RESOURCE_EXHAUSTED, naming the way, if it does not fit the devices.
using WayResults = std::vector<std::pair<std::string, absl::StatusOr<Simulated>>>;
absl::StatusOr<WayResults> SimulateWays(const Setting& setting, int64_t tokens) {
  WayResults results;
  for (const Way& way : Ways(setting.ranks)) {
    absl::StatusOr<Simulated> simulated = Simulate(setting, tokens, way);
    if (!simulated.ok()) {
      simulated = Annotate(simulated.status(), way.name);
      if (!absl::IsResourceExhausted(simulated.status())) return simulated.status();
    }
    results.emplace_back(way.name, std::move(simulated));
  }
  return results;
}

Json SkippedWay(int64_t tokens, const std::string& way, const absl::Status& why) {
  return {{"tokens", tokens}, {"way", way}, {"why", std::string(why.message())}};
}

// Mean seconds per step of a layer with experts, in the order of steps. "layer": from its first step to that of the
// next layer.
std::map<std::string, double> LayerSeconds(const weights::ModelSpec& spec, const prefill::Timeline& timeline) {
  std::map<std::string, double> seconds;
  double first = 0;
  double last = 0;
  for (const prefill::Span& span : timeline.lanes[prefill::Timeline::kModel]) {
    if (span.layer >= spec.num_layers || !spec.IsMoeLayer(span.layer)) continue;
    if (first == 0) first = span.begin;
    last = span.end;
    seconds[span.name] += span.end - span.begin;
  }
  const auto layers = static_cast<double>(spec.num_moe_layers());
  for (auto& [name, sum] : seconds) sum /= layers;
  seconds["layer"] = (last - first) / layers;
  return seconds;
}

// Mean seconds of a layer with experts for which exchanges between ranks were under way, by their names.
std::map<std::string, double> ExchangeSeconds(const weights::ModelSpec& spec, const prefill::Timeline& timeline) {
  std::map<std::string, double> seconds;
  for (const prefill::Span& span : timeline.lanes[prefill::Timeline::kExchanges]) {
    if (span.bytes > 0 && spec.IsMoeLayer(span.layer)) seconds[span.name] += span.end - span.begin;
  }
  for (auto& [name, sum] : seconds) sum /= static_cast<double>(spec.num_moe_layers());
  return seconds;
}

// Lengths in the ways that fit, and the ways that do not fit.
struct SimulatedLengths {
  Json rows = Json::array();
  Json skipped = Json::array();
};

// An error if no length fits.
absl::StatusOr<SimulatedLengths> CompareLengths(const Setting& setting, const std::vector<int64_t>& tokens) {
  SimulatedLengths lengths;
  absl::Status too_long;
  for (const int64_t count : tokens) {
    MOE_ASSIGN_OR_RETURN(const WayResults results, SimulateWays(setting, count));
    Json ways = Json::array();
    const absl::StatusOr<Simulated>& one = results.front().second;
    for (const auto& [name, simulated] : results) {
      if (!simulated.ok()) {
        too_long = simulated.status();
        lengths.skipped.push_back(SkippedWay(count, name, simulated.status()));
        continue;
      }
      ways.push_back({{"way", name},
                      {"ttft_seconds", simulated->seconds},
                      {"tokens_per_second", static_cast<double>(count) / simulated->seconds},
                      {"passes", simulated->passes},
                      {"exchanged_bytes", simulated->exchanged_bytes},
                      {"exchange_seconds", simulated->exchange_seconds},
                      {"exchange_wait_seconds", simulated->exchange_wait_seconds},
                      {"attention_imbalance", simulated->imbalance}});
      if (one.ok()) ways.back()["speedup"] = one->seconds / simulated->seconds;
    }
    if (!ways.empty()) lengths.rows.push_back({{"tokens", count}, {"ranks", setting.ranks}, {"ways", std::move(ways)}});
  }
  if (lengths.rows.empty()) return too_long;
  return lengths;
}

// The time of a layer with experts, step by step, in each way that fits. Ways that do not fit go to `skipped`.
absl::StatusOr<Json> LayerBreakdown(const Setting& setting, int64_t tokens, Json* skipped) {
  Json ways = Json::array();
  MOE_ASSIGN_OR_RETURN(const WayResults results, SimulateWays(setting, tokens));
  for (const auto& [name, simulated] : results) {
    if (!simulated.ok()) {
      skipped->push_back(SkippedWay(tokens, name, Annotate(simulated.status(), "a layer with experts")));
      continue;
    }
    Json steps = Json::object();
    const std::map<std::string, double> seconds = LayerSeconds(setting.spec, simulated->timeline);
    for (const engine::StepKind kind :
         {engine::StepKind::kAttention, engine::StepKind::kRoute, engine::StepKind::kDispatch,
          engine::StepKind::kExperts, engine::StepKind::kCombine, engine::StepKind::kSharedExpert}) {
      const auto step = seconds.find(engine::StepName(kind));
      if (step != seconds.end()) steps[step->first] = step->second;
    }
    ways.push_back({{"way", name},
                    {"tokens", tokens},
                    {"layer_seconds", seconds.at("layer")},
                    {"steps", steps},
                    {"exchanges", ExchangeSeconds(setting.spec, simulated->timeline)}});
  }
  return ways;
}

// The paper's figures for two devices.
absl::StatusOr<std::vector<PaperFigure>> CompareRanksWithPaper(const Setting& setting) {
  std::vector<PaperFigure> figures;
  const auto add = [&](const std::string& what, double paper, double here, const char* figure, const char* section) {
    figures.push_back({.what = what, .paper = paper, .simulated = here, .figure = figure, .section = section});
  };
  Json skipped = Json::array();
  MOE_ASSIGN_OR_RETURN(const Json layers, LayerBreakdown(setting, kPaperTokens, &skipped));
  if (!skipped.empty()) return absl::ResourceExhaustedError(skipped[0]["why"].get<std::string>());
  const auto layer = [&](size_t way) { return layers[way]["layer_seconds"].get<double>(); };
  add("layer, CP2+EP2 / one device, 20K tokens", kPaperStandardLayer, layer(1) / layer(0), "3", "2.2.3");
  add("layer, CP2+SmallEP2 / one device, 20K tokens", kPaperSmallLayer, layer(2) / layer(0), "3", "2.2.3");
  const Json& standard = layers[1]["steps"];
  add("dispatch and combine / layer, CP2+EP2", kPaperExchangeShare,
      (standard["dispatch"].get<double>() + standard["combine"].get<double>()) / layer(1), "3", "2.2.3");
  const auto seconds = [&](int64_t tokens, size_t way) -> absl::StatusOr<double> {
    MOE_ASSIGN_OR_RETURN(const Simulated simulated, Simulate(setting, tokens, Ways(kPaperRanks)[way]));
    return simulated.seconds;
  };
  for (const int64_t kibitokens : {20, 32}) {
    MOE_ASSIGN_OR_RETURN(const double one, seconds(kibitokens * 1024, 0));
    MOE_ASSIGN_OR_RETURN(const double two, seconds(kibitokens * 1024, 2));
    add(absl::StrFormat("CP2+SmallEP2 times as fast, %dK tokens", kibitokens), kPaperSpeedup, one / two, "13", "4.2");
  }
  MOE_ASSIGN_OR_RETURN(const double of45k, seconds(kPaperLongTokens, 2));
  add("seconds, 45K tokens on 2 devices (at most)", kPaperLongSeconds, of45k, "14", "1");
  figures.back().bound = Bound::kAtMost;
  return figures;
}

void PrintRanks(const Json& rows) {
  PrintText(
      "  tokens  way                TTFT s  tokens/s  speedup  passes  exchanged GB  in s  of that waiting s  "
      "attention imbalance\n");
  for (const auto& row : rows) {
    for (const auto& way : row["ways"]) {
      const std::string speedup = way.contains("speedup") ? absl::StrFormat("%.2f", way["speedup"].get<double>()) : "-";
      PrintText(absl::StrFormat("%8d  %-16s %8.2f %9.0f %8s %7d %13.1f %5.2f %18.2f %20.3f\n",
                                row["tokens"].get<int64_t>(), way["way"].get<std::string>(),
                                way["ttft_seconds"].get<double>(), way["tokens_per_second"].get<double>(), speedup,
                                way["passes"].get<int64_t>(), way["exchanged_bytes"].get<double>() / 1e9,
                                way["exchange_seconds"].get<double>(), way["exchange_wait_seconds"].get<double>(),
                                way["attention_imbalance"].get<double>()));
    }
  }
}

void PrintSkipped(const Json& skipped) {
  for (const auto& length : skipped) {
    PrintText(absl::StrFormat("%8d  skipped: %s\n", length["tokens"].get<int64_t>(), length["why"].get<std::string>()));
  }
}

void PrintLayerBreakdown(const Json& ways) {
  const auto print = [](const Json& seconds) {
    for (const auto& [name, of] : seconds.items())
      PrintText(absl::StrFormat("  %s %.1f", name, 1e3 * of.get<double>()));
    PrintText("\n");
  };
  PrintText(
      absl::StrFormat("\nA layer with experts, %d tokens, ms; dispatch and combine: the device waits, or adds up\n",
                      ways[0]["tokens"].get<int64_t>()));
  for (const auto& way : ways) {
    PrintText(
        absl::StrFormat("  %-16s %7.1f:", way["way"].get<std::string>(), 1e3 * way["layer_seconds"].get<double>()));
    print(way["steps"]);
    if (way["exchanges"].empty()) continue;
    PrintText(absl::StrFormat("  %-25s:", "  exchanges under way"));
    print(way["exchanges"]);
  }
}

}  // namespace

std::string ProductsLine(const GpuMachine& machine, DType activations) {
  if (activations == DType::kF8E4M3 && !machine.built_fp8) {
    return "products of FP8 values, at the GPU's FP8 rate: there is no kernel for that\n";
  }
  const char* const values = activations == DType::kF8E4M3 ? "FP8" : "BF16";
  return absl::StrFormat("products of %s values, at the GPU's %s rate, as in the kernels here\n%s", values, values,
                         RatesLine(machine));
}

std::string RatesLine(const GpuMachine& machine) {
  if (machine.origin.empty()) return "the kernels' rates: assumed by the hardware file\n";
  if (machine.origin == "estimated") {
    return "the kernels' rates: estimated from their instructions (loadtest/results/cuda-sass), not measured\n";
  }
  std::string lines = "the kernels' rates: measured on this kind of GPU\n";
  for (const KernelRate& rate : machine.rates) {
    absl::StrAppendFormat(&lines, "  %-26s estimated %.3f, ", rate.name, rate.estimated);
    if (rate.measured) {
      absl::StrAppendFormat(&lines, "measured %.3f (%+.1f %%)\n", *rate.measured,
                            100 * (*rate.measured / rate.estimated - 1));
    } else {
      lines += "not measured\n";
    }
  }
  return lines;
}

prefill::MemoryLimits InPapersWay(prefill::MemoryLimits limits) {
  limits.max_experts_together = 1;
  return limits;
}

engine::CostOptions CostsInPapersWay(engine::CostOptions costs) {
  costs.activations = DType::kF8E4M3;
  costs.cuts_rows = false;
  return costs;
}

absl::StatusOr<PaperComparison> CompareRanks(const GpuMachine& machine, const prefill::MemoryLimits& limits) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  PaperComparison comparison;
  MOE_ASSIGN_OR_RETURN(
      comparison.built,
      CompareRanksWithPaper({machine.built, spec, limits, {.activations = machine.BuiltActivations()}, kPaperRanks}));
  MOE_ASSIGN_OR_RETURN(comparison.paper_way, CompareRanksWithPaper({machine.paper_way, spec, InPapersWay(limits),
                                                                    CostsInPapersWay(), kPaperRanks}));
  return comparison;
}

absl::StatusOr<Json> PaperLayer(const device::HardwareSpec& hardware, const prefill::MemoryLimits& limits,
                                DType activations) {
  Json skipped = Json::array();
  MOE_ASSIGN_OR_RETURN(
      Json layer,
      LayerBreakdown(
          {hardware, checkpoint::PublishedModel("deepseek-v3"), limits, {.activations = activations}, kPaperRanks},
          kPaperTokens, &skipped));
  if (!skipped.empty()) return absl::ResourceExhaustedError(skipped[0]["why"].get<std::string>());
  return layer;
}

absl::Status SimulateSeveral(const GpuMachine& machine, const SimulateRanksFlags& flags) {
  const device::HardwareSpec& hardware = machine.For(flags.activations);
  const Setting setting = {
      hardware, checkpoint::PublishedModel(flags.model), flags.limits, {.activations = flags.activations}, flags.ranks};
  MOE_RETURN_IF_ERROR(CheckHasExperts(setting.spec, flags.model, "--ranks"));
  MOE_ASSIGN_OR_RETURN(SimulatedLengths lengths, CompareLengths(setting, flags.tokens));
  // The user did not ask for this length, so the shorter ones are printed without it.
  MOE_ASSIGN_OR_RETURN(const Json layer, LayerBreakdown(setting, kPaperTokens, &lengths.skipped));
  Json claims = Json::array();
  if (flags.paper) {
    const absl::StatusOr<PaperComparison> compared = CompareRanks(machine, flags.limits);
    MOE_RETURN_IF_ERROR(Annotate(compared.status(), "--paper"));
    claims = PaperClaims(*compared);
  }
  if (flags.json) {
    PrintJson({{"hardware", hardware.name},
               {"model", flags.model},
               {"activations", flags.activations == DType::kF8E4M3 ? "fp8" : "bf16"},
               {"kernel_rates", machine.origin},
               {"ranks", flags.ranks},
               {"prefill", lengths.rows},
               {"skipped", lengths.skipped},
               {"layer", layer},
               {"paper", claims}},
              true);
    return absl::OkStatus();
  }
  PrintText(absl::StrFormat("%s, FP8, streamed on %d devices: %s\n", flags.model, flags.ranks, hardware.name));
  PrintText(ProductsLine(machine, flags.activations));
  PrintRanks(lengths.rows);
  PrintSkipped(lengths.skipped);
  if (!layer.empty()) PrintLayerBreakdown(layer);
  if (flags.paper) PrintClaims(claims);
  return absl::OkStatus();
}

}  // namespace moestro::cli
