#include "services/cli/plan/stream_claims.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "services/cli/plan/simulate_ranks.h"

namespace moestro::cli {
namespace {

// The numeric claims of "Cloud-grade SLOs for local MoE" for one RTX 5090. The other lengths are in a plot without
// values.
constexpr double kPaperTokensPerSecond = 1200;    // "up to" (section 1)
constexpr double kPaperSecondsOf32K = 30;         // "within" (section 1)
constexpr double kPaperSecondsOf24K = 20;         // "about" (section 4.5)
constexpr double kPaperShareBeforeExperts = 0.4;  // "more than", of a layer's time, 20K tokens (section 5)
constexpr double kPaperTurningPoint = 50000;      // "e.g.": from here on a ring of two slots (section 3.1)

constexpr int64_t kKibi = 1024;

// The share of the time before the experts in the layers with experts.
double ShareBeforeExperts(const weights::ModelSpec& spec, const prefill::Timeline& timeline) {
  double before = 0;
  double all = 0;
  for (const prefill::Span& span : timeline.lanes[prefill::Timeline::kModel]) {
    if (span.layer >= spec.num_layers || !spec.IsMoeLayer(span.layer)) continue;
    const std::string_view name = span.name;
    const bool is_before =
        name == engine::StepName(engine::StepKind::kAttention) || name == engine::StepName(engine::StepKind::kRoute);
    (is_before ? before : all) += span.end - span.begin;
  }
  return before / (before + all);
}

// The paper's figures beside those of a simulation. fitted: in the paper's way.
absl::StatusOr<std::vector<PaperFigure>> CompareWithPaper(const device::HardwareSpec& hardware,
                                                          const weights::ModelSpec& spec,
                                                          const prefill::MemoryLimits& limits,
                                                          const engine::CostOptions& costs, bool fitted) {
  const auto simulate = [&](int64_t kibitokens, int64_t ring_slots) -> absl::StatusOr<prefill::PipelineReport> {
    prefill::MemoryLimits with_ring = limits;
    with_ring.ring_slots = ring_slots;
    MOE_ASSIGN_OR_RETURN(prefill::SimulatedPrefill simulated,
                         prefill::SimulatePrefill(hardware, spec, DType::kF8E4M3, model::MlaForm::kUnabsorbed,
                                                  kibitokens * kKibi, with_ring, costs));
    return std::move(simulated.report);
  };
  std::vector<PaperFigure> figures;
  MOE_ASSIGN_OR_RETURN(const prefill::PipelineReport of4k, simulate(4, limits.ring_slots));
  MOE_ASSIGN_OR_RETURN(const prefill::PipelineReport of20k, simulate(20, limits.ring_slots));
  MOE_ASSIGN_OR_RETURN(const prefill::PipelineReport of24k, simulate(24, limits.ring_slots));
  MOE_ASSIGN_OR_RETURN(const prefill::PipelineReport of32k, simulate(32, limits.ring_slots));
  // The file's fp8_linear_fraction was chosen for this figure (deploy/hardware/README.md).
  figures.push_back({.what = "seconds, 24K tokens (about)",
                     .paper = kPaperSecondsOf24K,
                     .simulated = of24k.counters.wall_seconds,
                     .fitted = fitted,
                     .figure = "18",
                     .section = "4.5"});
  figures.push_back({.what = "seconds, 32K tokens (at most)",
                     .paper = kPaperSecondsOf32K,
                     .simulated = of32k.counters.wall_seconds,
                     .bound = Bound::kAtMost,
                     .figure = "14",
                     .section = "1"});
  double most = 0;
  for (int64_t kibitokens = 4; kibitokens <= 64; kibitokens += 4) {
    MOE_ASSIGN_OR_RETURN(const prefill::PipelineReport report, simulate(kibitokens, limits.ring_slots));
    most = std::max(most, static_cast<double>(kibitokens * kKibi) / report.counters.wall_seconds);
  }
  figures.push_back({.what = "most tokens/s, 4K to 64K tokens (up to)",
                     .paper = kPaperTokensPerSecond,
                     .simulated = most,
                     .figure = "13",
                     .section = "1"});
  // The length from which a ring of two slots is as fast as a full one.
  constexpr int64_t kLongest = 64;
  int64_t too_few = 4;
  int64_t enough = kLongest + 1;
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    MOE_ASSIGN_OR_RETURN(const prefill::PipelineReport full, simulate(middle, limits.ring_slots));
    MOE_ASSIGN_OR_RETURN(const prefill::PipelineReport two, simulate(middle, 2));
    constexpr double kNothing = 0.001;
    const bool suffice = two.counters.wall_seconds <= (1 + kNothing) * full.counters.wall_seconds;
    (suffice ? enough : too_few) = middle;
  }
  figures.push_back({.what = "tokens, to 64K, from which two slots are enough",
                     .paper = kPaperTurningPoint,
                     .simulated = enough > kLongest ? kNotReached : static_cast<double>(enough * kKibi),
                     .figure = "section 6",
                     .section = "3.1"});
  figures.push_back({.what = "share before experts, 20K tokens (more than)",
                     .paper = kPaperShareBeforeExperts,
                     .simulated = ShareBeforeExperts(spec, of20k.timeline),
                     .bound = Bound::kAtLeast,
                     .figure = "3",
                     .section = "5"});
  figures.push_back({.what = "4K tokens are transfer-bound (1: yes)",
                     .paper = 1,
                     .simulated = IsTransferBound(of4k.counters) ? 1.0 : 0.0,
                     .figure = "13",
                     .section = "4.2"});
  return figures;
}

}  // namespace

bool IsTransferBound(const prefill::StreamCounters& counters) {
  return counters.load_seconds > counters.compute_seconds;
}

absl::StatusOr<PaperComparison> CompareStream(const GpuMachine& machine, const prefill::MemoryLimits& limits,
                                              const engine::CostOptions& costs) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  engine::CostOptions with = costs;
  PaperComparison comparison;
  with.activations = machine.BuiltActivations();
  MOE_ASSIGN_OR_RETURN(comparison.built, CompareWithPaper(machine.built, spec, limits, with, /*fitted=*/false));
  MOE_ASSIGN_OR_RETURN(comparison.paper_way, CompareWithPaper(machine.paper_way, spec, InPapersWay(limits),
                                                              CostsInPapersWay(costs), /*fitted=*/true));
  return comparison;
}

}  // namespace moestro::cli
