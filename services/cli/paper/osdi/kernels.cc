#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/cli/paper/osdi/figures.h"

namespace moestro::cli {
namespace {

// Table 1: µs of a product.
constexpr double kOpenBlas = 69.5;  // F32
constexpr double kAoclBf16 = 69.5;
constexpr double kStandard = 21.7;
constexpr double kOptimised = 15.5;

// The row of this contestant, with the paper's matrix and all cores.
const bench::Row* Find(const bench::BenchReport& report, const std::string& contestant) {
  const bench::Row* found = nullptr;
  for (const bench::BenchSection& section : report.sections) {
    if (section.id != "table1") continue;
    for (const bench::Row& row : section.findings.rows) {
      if (!absl::StrContains(row.name, absl::StrCat("all cores: ", contestant))) continue;
      found = &row;
    }
  }
  return found;
}

std::optional<double> TimesAsFast(const std::optional<bench::BenchReport>& report, const std::string& subject,
                                  const std::string& than) {
  if (!report) return std::nullopt;
  const bench::Row *a = Find(*report, subject), *b = Find(*report, than);
  if (a == nullptr || b == nullptr) return std::nullopt;
  return b->microseconds.median / a->microseconds.median;
}

}  // namespace

absl::Status AddKernels(const OsdiContext& context, Figure& figure) {
  const std::optional<bench::BenchReport>& report = context.input.measured;
  const auto add = [&](const std::string& what, double paper, std::optional<double> ours, Bound bound = Bound::kNear,
                       const char* section = "4.6") {
    figure.claims.push_back({.what = what,
                             .paper = paper,
                             .bound = bound,
                             .section = section,
                             .ours = ours.value_or(kNotReached),
                             .origin = Origin::kMeasured,
                             .basis = ours ? Basis::kPredicted : Basis::kOpen});
  };
  constexpr char kOurs[] = "this project, FP8";
  add("times as fast as OpenBLAS in F32 (at least)", kOpenBlas / kOptimised, TimesAsFast(report, kOurs, "OpenBLAS"),
      Bound::kAtLeast);
  add("times as fast as a library in BF16: AOCL there, oneDNN here (at least)", kAoclBf16 / kOptimised,
      TimesAsFast(report, kOurs, "oneDNN"), Bound::kAtLeast);
  add("times as fast as the standard kernel (at least)", kStandard / kOptimised,
      TimesAsFast(report, kOurs, "paper's standard kernel"), Bound::kAtLeast);
  const bench::Row* ours = report ? Find(*report, kOurs) : nullptr;
  add("p95 of the L1 error, outputs of deviation 1 (at most)", 0.0017, ours == nullptr ? std::nullopt : ours->error_p95,
      Bound::kAtMost, "3.4.1");
  if (report) {
    figure.about = absl::StrCat(figure.about, " Measured on: ", bench::CpuName(report->machine), ", ",
                                report->settings.threads, " threads, ", report->date, ".");
  }
  return absl::OkStatus();
}

absl::Status AddQuality(const OsdiContext&, Figure& figure) {
  struct Score {
    const char* of;
    double percent;
    double official;  // as the models' releases have it
  };
  Chart chart{.title = "Quality", .x_label = "model, suite", .y_label = "% right"};
  Chart::Curve paper{.name = "paper's node", .origin = Origin::kCited, .points = {}};
  Chart::Curve official{.name = "official", .origin = Origin::kCited, .points = {}};
  for (const Score& score :
       {Score{"DeepSeek-V3.1, MMLU-Redux", 91.00, 91.8}, Score{"DeepSeek-V3.1, MMLU-Pro", 83.41, 83.7},
        Score{"Kimi-K2-Instruct, MMLU-Redux", 91.53, 92.7}, Score{"Kimi-K2-Instruct, MMLU-Pro", 80.00, 81.1}}) {
    figure.claims.push_back({.what = absl::StrCat("% right, ", score.of),
                             .paper = score.percent,
                             .section = "4.7",
                             .origin = Origin::kMeasured,
                             .basis = Basis::kOpen});
    const auto group = static_cast<double>(chart.groups.size());
    chart.groups.emplace_back(score.of);
    paper.points.push_back({group, score.percent});
    official.points.push_back({group, score.official});
  }
  chart.curves = {std::move(paper), std::move(official)};
  figure.charts.push_back(std::move(chart));
  return absl::OkStatus();
}

}  // namespace moestro::cli
