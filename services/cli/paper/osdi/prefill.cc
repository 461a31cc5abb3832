#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "services/cli/paper/osdi/figures.h"
#include "services/cli/plan/simulate_ranks.h"
#include "services/prefill/distributed/simulate_ranks.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::cli {
namespace {

constexpr DType kWeights = DType::kF8E4M3;
constexpr model::MlaForm kForm = model::MlaForm::kUnabsorbed;
constexpr int64_t kLengths[] = {4 * kKibi, 8 * kKibi, 16 * kKibi, 20 * kKibi, 32 * kKibi, 48 * kKibi, 64 * kKibi};
constexpr int64_t kAllLengths[] = {256,       512,        kKibi,      2 * kKibi, 4 * kKibi,
                                   8 * kKibi, 16 * kKibi, 32 * kKibi, 64 * kKibi};

// KTransformers with AMX, INT4, on its authors' machine, as section 2.2.2 cites and estimates it.
struct Cited {
  int64_t tokens;
  double seconds;
};
constexpr Cited kKTransformers[] = {
    {2 * kKibi, 2 * kKibi / 500.0}, {8 * kKibi, 20}, {16 * kKibi, 40}, {32 * kKibi, 100}};

absl::StatusOr<double> OneGpu(const OsdiContext& context, int64_t tokens) {
  MOE_ASSIGN_OR_RETURN(const prefill::SimulatedPrefill simulated,
                       prefill::SimulatePrefill(context.built(), context.v3, kWeights, kForm, tokens, {},
                                                {.activations = context.activations()}));
  return simulated.report.counters.wall_seconds;
}

absl::StatusOr<double> TwoGpus(const OsdiContext& context, int64_t tokens) {
  MOE_ASSIGN_OR_RETURN(
      const prefill::SimulatedRanks simulated,
      prefill::SimulateRanks(context.built(), context.v3, kWeights, kForm, tokens, {}, 2,
                             roofline::ExpertParallelism::kSmall, {.activations = context.activations()}));
  return simulated.wall_seconds;
}

double OnCpu(const OsdiContext& context, int64_t tokens) {
  return roofline::PromptSeconds(context.input.cpu, context.v3, kWeights, tokens).total();
}

// The shortest prompt, in steps of 64 tokens, that streams at least as fast as the CPU computes it.
absl::StatusOr<double> Crossover(const OsdiContext& context) {
  constexpr int64_t kStep = 64;
  int64_t cpu = 0, streamed = 64 * kKibi / kStep;
  while (streamed - cpu > 1) {
    const int64_t middle = (cpu + streamed) / 2;
    MOE_ASSIGN_OR_RETURN(const double seconds, OneGpu(context, middle * kStep));
    (seconds <= OnCpu(context, middle * kStep) ? streamed : cpu) = middle;
  }
  return static_cast<double>(streamed * kStep);
}

Chart::Curve KTransformersCurve(bool throughput) {
  Chart::Curve curve{.name = "KTransformers, AMX, INT4", .origin = Origin::kCited, .points = {}};
  for (const Cited& cited : kKTransformers) {
    const auto tokens = static_cast<double>(cited.tokens);
    curve.points.push_back({tokens, throughput ? tokens / cited.seconds : cited.seconds});
  }
  return curve;
}

}  // namespace

absl::Status AddLayer(const OsdiContext& context, Figure& figure) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::ordered_json ways, PaperLayer(context.built(), {}, context.activations()));
  Chart chart{.title = "Milliseconds of a layer, as built", .x_label = "", .y_label = "ms"};
  for (const char* step : {"attention", "route", "dispatch", "experts", "combine", "shared expert"}) {
    Chart::Curve curve{.name = step, .points = {}};
    for (size_t way = 0; way < ways.size(); ++way) {
      if (ways[way]["steps"].contains(step)) {
        curve.points.push_back({static_cast<double>(way), 1e3 * ways[way]["steps"][step].get<double>()});
      }
    }
    chart.curves.push_back(std::move(curve));
  }
  for (const auto& way : ways) {
    chart.groups.push_back(absl::StrCat(way["way"].get<std::string>(), ": ",
                                        std::lround(1e3 * way["layer_seconds"].get<double>()), " ms"));
  }
  figure.charts.push_back(std::move(chart));
  figure.claims.push_back({.what = "ms of gating and sorting, CP2+SmallEP2 (below)",
                           .paper = 10,
                           .bound = Bound::kAtMost,
                           .section = "3.2",
                           .ours = 1e3 * ways[2]["steps"]["route"].get<double>()});
  return absl::OkStatus();
}

absl::Status AddThroughput(const OsdiContext& context, Figure& figure) {
  Chart::Curve cpu{.name = "CPU, FP8", .points = {}}, one{.name = "SLP", .points = {}},
      two{.name = "DSLP", .points = {}};
  double most = 0;
  for (const int64_t tokens : kLengths) {
    const auto x = static_cast<double>(tokens);
    MOE_ASSIGN_OR_RETURN(const double streamed, OneGpu(context, tokens));
    MOE_ASSIGN_OR_RETURN(const double shared, TwoGpus(context, tokens));
    cpu.points.push_back({x, x / OnCpu(context, tokens)});
    one.points.push_back({x, x / streamed});
    two.points.push_back({x, x / shared});
    most = std::max(most, x / shared);
  }
  constexpr int64_t kLong = 32 * kKibi;
  MOE_ASSIGN_OR_RETURN(const double of_32k, OneGpu(context, kLong));
  figure.claims.push_back({.what = "most tokens/s of two GPUs, 4K to 64K tokens (over)",
                           .paper = 1800,
                           .bound = Bound::kAtLeast,
                           .section = "1",
                           .ours = most});
  figure.claims.push_back({.what = "SLP over KTransformers as estimated, 32K tokens",
                           .paper = 2.8,
                           .section = "4.2",
                           .ours = 100 / of_32k});
  figure.claims.push_back({.what = "SLP over the CPU, 32K tokens (more than)",
                           .paper = 10,
                           .bound = Bound::kAtLeast,
                           .section = "4.2",
                           .ours = OnCpu(context, kLong) / of_32k});
  figure.charts.push_back({.title = "Tokens per second, as built",
                           .x_label = "tokens of the prompt",
                           .y_label = "tokens/s",
                           .curves = {std::move(cpu), std::move(one), std::move(two), KTransformersCurve(true)}});
  return absl::OkStatus();
}

absl::Status AddFirstToken(const OsdiContext& context, Figure& figure) {
  Chart::Curve cpu{.name = "CPU, FP8", .points = {}}, one{.name = "SLP", .points = {}},
      two{.name = "DSLP", .points = {}};
  for (const int64_t tokens : kAllLengths) {
    const auto x = static_cast<double>(tokens);
    MOE_ASSIGN_OR_RETURN(const double streamed, OneGpu(context, tokens));
    MOE_ASSIGN_OR_RETURN(const double shared, TwoGpus(context, tokens));
    cpu.points.push_back({x, OnCpu(context, tokens)});
    one.points.push_back({x, streamed});
    two.points.push_back({x, shared});
  }
  MOE_ASSIGN_OR_RETURN(const double crossover, Crossover(context));
  figure.claims.push_back({.what = "tokens from which a prompt streams rather than stays on the CPU",
                           .paper = 4 * kKibi,
                           .section = "4.2",
                           .ours = crossover});
  figure.charts.push_back({.title = "Seconds to the first token, as built",
                           .x_label = "tokens of the prompt",
                           .y_label = "seconds",
                           .log_x = true,
                           .log_y = true,
                           .curves = {std::move(cpu), std::move(one), std::move(two), KTransformersCurve(false)}});
  return absl::OkStatus();
}

}  // namespace moestro::cli
