#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/cli/paper/trimoe/figures.h"

namespace moestro::cli {
namespace {

constexpr int64_t kSensitivityBatch = 512;

// Seconds of a layer's experts under TriMoE, mean of the models.
double Seconds(TriMoeStudy& study, const experts::DomainRates& rates) {
  double sum = 0;
  for (const TriMoeModel& model : TriMoeModels()) sum += study.With(rates, model, kSensitivityBatch, kTriMoe).moe();
  return sum / static_cast<double>(TriMoeModels().size());
}

template <typename Change>
void AddSweep(const TriMoeContext& context, const char* title, const char* x_label, std::span<const double> values,
              Change change, Figure& figure) {
  Chart::Curve curve{.name = "TriMoE", .points = {}};
  for (const double value : values) {
    experts::DomainRates rates = context.study.machine().rates;
    change(value, rates);
    curve.points.push_back({value, 1e3 * Seconds(context.study, rates)});
  }
  figure.charts.push_back({.title = title, .x_label = x_label, .y_label = "ms of a layer's experts", .log_x = true});
  figure.charts.back().curves.push_back(std::move(curve));
}

}  // namespace

void AddSensitivity(const TriMoeContext& context, Figure& figure) {
  constexpr double kDimms[] = {4, 8, 16, 32, 64}, kScales[] = {0.125, 0.25, 0.5, 1, 2};
  AddSweep(
      context, "Figure 9 (a): DIMMs with processors", "DIMMs", kDimms,
      [](double count, experts::DomainRates& rates) { rates.dimms = static_cast<int64_t>(count); }, figure);
  AddSweep(
      context, "Figure 9 (b): rate of the CPU", "times AMX", kScales,
      [](double scale, experts::DomainRates& rates) { rates.cpu.flops_per_second *= scale; }, figure);
  const auto& dimms = figure.charts[0].curves[0].points;
  const auto& scales = figure.charts[1].curves[0].points;
  const auto claim = [&](const char* what, double paper, Bound bound, const char* section, double ours) {
    figure.claims.push_back({.what = what, .paper = paper, .bound = bound, .section = section, .ours = ours});
  };
  claim("time with 16 DIMMs over 32: flat", 1.05, Bound::kAtMost, "5.4.1", dimms[2].y / dimms[3].y);
  claim("time with 8 DIMMs over 16: not flat yet", 1.15, Bound::kAtLeast, "5.4.1", dimms[1].y / dimms[2].y);
  claim("time with half the CPU's rate over twice the rate: flat", 1.1, Bound::kAtMost, "5.4.2",
        scales[2].y / scales[4].y);
  claim("time with an eighth of the CPU's rate over the whole: not flat", 1.2, Bound::kAtLeast, "5.4.2",
        scales[0].y / scales[3].y);
}

}  // namespace moestro::cli
