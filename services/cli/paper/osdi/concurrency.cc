#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "services/cli/paper/osdi/figures.h"
#include "services/cli/plan/simulate_concurrency.h"
#include "services/cli/plan/simulate_ranks.h"

namespace moestro::cli {
namespace {

// Section 4.5.
constexpr int64_t kPrompt = 24 * kKibi;
constexpr int64_t kDecodePrompt = 10;
constexpr int64_t kGenerated = 480;

struct Workload {
  const char* name;
  int64_t prompt_tokens;
  int64_t sequences;
};
constexpr Workload kWorkloads[] = {
    {"1P", kPrompt, 0}, {"1D", 0, 1}, {"1P+1D", kPrompt, 1}, {"2D", 0, 2}, {"1P+2D", kPrompt, 2}};
enum Index : size_t { k1P, k1D, k1P1D, k2D, k1P2D };

// Of the workloads.
struct Outcome {
  std::vector<ConcurrentSeconds> seconds;

  double Prompt(Index i) const { return seconds[i].prompt / seconds[k1P].prompt; }
  double PerToken(Index i) const { return seconds[i].decode / seconds[k1D].decode; }
  double MostPerToken() const { return std::max({PerToken(k1P1D), PerToken(k2D), PerToken(k1P2D)}); }
  double MostTotal() const {
    double most = 0;
    for (const ConcurrentSeconds& one : seconds) most = std::max(most, one.total() / seconds[k1P].total());
    return most;
  }
};

absl::StatusOr<Outcome> Simulate(const OsdiContext& context, const device::HardwareSpec& hardware,
                                 const prefill::MemoryLimits& limits, const engine::CostOptions& costs) {
  Outcome outcome;
  for (const Workload& workload : kWorkloads) {
    MOE_ASSIGN_OR_RETURN(outcome.seconds.emplace_back(), SimulateConcurrency(hardware, context.v3,
                                                                             {.prompt_tokens = workload.prompt_tokens,
                                                                              .sequences = workload.sequences,
                                                                              .context = kDecodePrompt,
                                                                              .steps = kGenerated},
                                                                             limits, costs));
  }
  return outcome;
}

}  // namespace

absl::Status AddConcurrency(const OsdiContext& context, Figure& figure) {
  MOE_ASSIGN_OR_RETURN(const Outcome built,
                       Simulate(context, context.built(), {}, {.activations = context.activations()}));
  MOE_ASSIGN_OR_RETURN(const Outcome way,
                       Simulate(context, context.input.node.paper_way, InPapersWay({}), CostsInPapersWay()));
  const auto add = [&](const char* what, double paper, double ours, double paper_way, const char* section,
                       Bound bound = Bound::kNear) {
    figure.claims.push_back(
        {.what = what, .paper = paper, .bound = bound, .section = section, .ours = ours, .paper_way = paper_way});
  };
  add("seconds of a decode of 480 tokens, 1D (about)", 20, built.seconds[k1D].decode, way.seconds[k1D].decode, "4.5");
  // "less than 15% latency increase" of both, with minimal interference.
  add("time to the first token, 1P+1D over 1P (below)", 1.15, built.Prompt(k1P1D), way.Prompt(k1P1D), "1",
      Bound::kAtMost);
  add("time per token, 1P+1D over 1D (below)", 1.15, built.PerToken(k1P1D), way.PerToken(k1P1D), "1", Bound::kAtMost);
  add("time to the first token, 1P+2D over 1P", 1.18, built.Prompt(k1P2D), way.Prompt(k1P2D), "4.5");
  add("time per token, most over 1D", 1.54, built.MostPerToken(), way.MostPerToken(), "4.5");
  add("time for all requests, most over 1P", 1.67, built.MostTotal(), way.MostTotal(), "4.5");

  Chart prompts{.title = "Time to the first token over 1P, as built", .x_label = "", .y_label = ""};
  Chart tokens{.title = "Time per token over 1D, as built", .x_label = "", .y_label = ""};
  Chart totals{.title = "Time for all requests over 1P, as built", .x_label = "", .y_label = ""};
  for (Chart* chart : {&prompts, &tokens, &totals}) {
    chart->curves.push_back({.name = "as built", .points = {}});
    for (const Workload& workload : kWorkloads) chart->groups.emplace_back(workload.name);
  }
  for (size_t i = 0; i < std::size(kWorkloads); ++i) {
    const auto x = static_cast<double>(i);
    const auto index = static_cast<Index>(i);
    const ConcurrentSeconds& seconds = built.seconds[i];
    if (seconds.prompt > 0) {
      prompts.curves[0].points.push_back({x, built.Prompt(index), absl::StrFormat("%.1f s", seconds.prompt)});
    }
    if (seconds.decode > 0) {
      tokens.curves[0].points.push_back(
          {x, built.PerToken(index), absl::StrFormat("%.1f ms", 1e3 * seconds.decode / kGenerated)});
    }
    totals.curves[0].points.push_back(
        {x, seconds.total() / built.seconds[k1P].total(), absl::StrFormat("%.1f s", seconds.total())});
  }
  figure.charts = {std::move(prompts), std::move(tokens), std::move(totals)};
  return absl::OkStatus();
}

}  // namespace moestro::cli
