#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/roofline/work_count.h"
#include "services/cli/paper/trimoe/figures.h"

namespace moestro::cli {
namespace {

constexpr int64_t kBatch = 512;
constexpr double kGibi = 1 << 30;

double ExpertBytes(const weights::ModelSpec& spec) {
  return roofline::CountModel(spec, DType::kBF16).layers.back().expert.bytes;
}

// How much longer DIMMs compute if they have the warm experts, too: ranks behind the hot tenth, over the last 70 %.
double WarmOverCold(TriMoeStudy& study, const TriMoeModel& model) {
  const weights::ModelSpec& spec = study.SpecOf(model);
  const roofline::WeightCount expert = roofline::CountModel(spec, DType::kBF16).layers.back().expert;
  const experts::DomainCosts costs =
      experts::CostsOf(study.machine().rates, expert.elements, expert.bytes, study.contention());
  double all = 0, cold = 0;
  for (const auto& pass : study.LoadsOf(model).batches.at(kBatch)) {
    for (std::vector<int32_t> rows : pass) {
      std::ranges::sort(rows, std::greater<>());
      const auto hot = rows.size() / 10, warm = rows.size() - rows.size() * 7 / 10;
      for (size_t rank = hot; rank < rows.size() && rows[rank] > 0; ++rank) {
        const double seconds = experts::SecondsOf(costs, rows[rank], {.dimm = 0}).near;
        all += seconds;
        if (rank >= warm) cold += seconds;
      }
    }
  }
  return all / cold;
}

}  // namespace

void AddWorkload(const TriMoeContext& context, Figure& figure) {
  TriMoeStudy& study = context.study;
  double warm = 0;
  for (const TriMoeModel& model : TriMoeModels()) {
    const weights::ModelSpec& spec = study.SpecOf(model);
    // The paper counts experts in every layer.
    figure.claims.push_back(
        {.what = absl::StrCat("GiB of routed experts, ", model.title),
         .paper = model.expert_gigabytes,
         .section = "Table 2",
         .ours = ExpertBytes(spec) * static_cast<double>(spec.num_experts * spec.num_layers) / kGibi,
         .origin = Origin::kComputed,
         .basis = Basis::kExact});
    const RoutedLoads& loads = study.LoadsOf(model);
    figure.claims.push_back({.what = absl::StrCat("share of tokens on the coldest 70 %, ", model.title),
                             .paper = 0.08,
                             .section = "3.1",
                             .ours = loads.cold_share,
                             .basis = Basis::kFitted});
    figure.claims.push_back({.what = absl::StrCat("experts that averages class rightly, ", model.title),
                             .paper = 0.78,
                             .section = "4.3",
                             .ours = loads.average_accuracy,
                             .basis = Basis::kFitted});
    figure.claims.push_back({.what = absl::StrCat("experts that averages want in the right domain, ", model.title),
                             .paper = 0.78,
                             .bound = Bound::kAtLeast,
                             .section = "5.3",
                             .ours = study.Of(model, kBatch, kTriMoe).foreseen_share});
    warm += WarmOverCold(study, model) / static_cast<double>(TriMoeModels().size());
    const auto slots = static_cast<double>(SlotsOf(spec) * spec.num_moe_layers());
    context.notes.push_back(
        absl::StrFormat("Slots of %s: %.1f GB of %.0f GB on the device, %.1f %% of the experts", model.title,
                        slots * ExpertBytes(spec) / 1e9, study.machine().gpu_memory_bytes / 1e9,
                        100 * static_cast<double>(SlotsOf(spec)) / static_cast<double>(spec.num_experts)));
  }
  figure.claims.push_back(
      {.what = "time of the DIMMs with warm experts over without", .paper = 7, .section = "3.1", .ours = warm});
  // "38 KB of memory overhead to store necessary metadata", for the largest of the models.
  const weights::ModelSpec& spec = study.SpecOf(TriMoeModels()[0]);
  const experts::DomainPlanner planner({.layers = spec.num_layers, .experts = spec.num_experts},
                                       experts::CostsOf(study.machine().rates, 1, 1, study.contention()));
  figure.claims.push_back({.what = "KB of averages and places, DeepSeek-V2",
                           .paper = 38,
                           .section = "4.3",
                           .ours = static_cast<double>(planner.bytes()) / 1e3,
                           .origin = Origin::kComputed});
}

void AddMigration(const TriMoeContext& context, Figure& figure) {
  TriMoeStudy& study = context.study;
  for (const TriMoeModel& model : TriMoeModels()) {
    const LayerTimes& times = study.Of(model, kBatch, kTriMoe);
    figure.claims.push_back({.what = absl::StrCat("time that migrations add, ", model.title),
                             .paper = 0.033,
                             .bound = Bound::kAtMost,
                             .section = "5.5",
                             .ours = times.exposed / (times.dense + times.moe())});
    const double bytes = ExpertBytes(study.SpecOf(model));
    const double link = study.machine().rates.link_bytes_per_second / study.machine().dimm_links;
    context.notes.push_back(
        absl::StrFormat("%s: %.1f migrations before a layer; window %.2f ms. Experts between different DIMMs over 1 / "
                        "2 / 3 links: %.2f / "
                        "%.2f / %.2f ms",
                        model.title, times.migrations, 1e3 * times.dense, 1e3 * bytes / link, 1e3 * bytes / (2 * link),
                        1e3 * bytes / (3 * link)));
    if (&model == &TriMoeModels()[0]) {
      figure.claims.push_back({.what = absl::StrCat("ms of four experts over DIMM-Link, ", model.title),
                               .paper = 0.63,
                               .section = "5.5",
                               .ours = 1e3 * bytes / study.machine().rates.link_bytes_per_second,
                               .origin = Origin::kComputed,
                               .basis = Basis::kFitted});
    }
    figure.claims.push_back({.what = absl::StrCat("ms of attention and dense part, the window, ", model.title),
                             .paper = 0.68,
                             .section = "5.5",
                             .ours = 1e3 * times.dense});
  }
  figure.claims.push_back(
      {.what = "migrations by DIMM-Link over those by the CPU", .paper = 62, .section = "4.1", .basis = Basis::kOpen});
  // With one link of 25 GB/s a DIMM, as Table 1 may be read.
  experts::DomainRates one_link = study.machine().rates;
  one_link.link_bytes_per_second /= study.machine().dimm_links;
  std::string gains;
  for (const TriMoeModel& model : TriMoeModels()) {
    const double without = study.Of(model, kBatch, kWithRefinement).moe();
    absl::StrAppendFormat(&gains, "%s%s %.2f, with one link %.2f", gains.empty() ? "" : "; ", model.title,
                          without / study.Of(model, kBatch, kTriMoe).moe(),
                          without / study.With(one_link, model, kBatch, kTriMoe).moe());
  }
  context.notes.push_back(absl::StrCat("Gain of migrations: ", gains));
}

}  // namespace moestro::cli
