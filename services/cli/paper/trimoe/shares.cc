#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/paper/trimoe/figures.h"

namespace moestro::cli {
namespace {

struct BusyShare {
  TriMoeSystem system;
  const char* domain;
  double LayerTimes::*share;
  double paper;
};

constexpr BusyShare kShares[] = {{kKlotski, "GPU", &LayerTimes::gpu_share, 0.286},
                                 {kKTransformersBaseline, "GPU", &LayerTimes::gpu_share, 0.576},
                                 {kKTransformersBaseline, "CPU", &LayerTimes::cpu_share, 0.42},
                                 {kMonde, "GPU", &LayerTimes::gpu_share, 0.339},
                                 {kMonde, "DIMMs", &LayerTimes::near_share, 0.701},
                                 {kTriMoe, "GPU", &LayerTimes::gpu_share, 0.66},
                                 {kTriMoe, "CPU", &LayerTimes::cpu_share, 0.749},
                                 {kTriMoe, "DIMMs", &LayerTimes::near_share, 0.878}};

constexpr int64_t kAblationBatch = 512;

}  // namespace

void AddBusyShares(const TriMoeContext& context, Figure& figure) {
  std::vector<double> ours;
  for (const BusyShare& share : kShares) {
    double sum = 0;
    for (const TriMoeModel& model : TriMoeModels()) {
      for (const int64_t batch : kBatches) sum += context.study.Of(model, batch, share.system).*share.share;
    }
    ours.push_back(sum / static_cast<double>(TriMoeModels().size() * std::size(kBatches)));
    figure.claims.push_back({.what = absl::StrFormat("share of time, %s of %s", share.domain, share.system.name),
                             .paper = share.paper,
                             .section = "Table 3",
                             .ours = ours.back()});
  }
  figure.claims.push_back({.what = "share of time, mean of TriMoE's domains",
                           .paper = 0.762,
                           .section = "5.2.1",
                           .ours = (ours[5] + ours[6] + ours[7]) / 3});
  int pairs = 0, ordered = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    for (size_t j = i + 1; j < ours.size(); ++j) {
      ++pairs;
      ordered += (kShares[i].paper < kShares[j].paper) == (ours[i] < ours[j]) ? 1 : 0;
    }
  }
  figure.claims.push_back({.what = "pairs of these eight in the printed order",
                           .paper = static_cast<double>(pairs),
                           .section = "Table 3",
                           .ours = static_cast<double>(ordered)});
}

void AddAblation(const TriMoeContext& context, Figure& figure) {
  constexpr TriMoeSystem kSteps[] = {kGpuNdp, kWithCpu, kWithRefinement, kTriMoe};
  constexpr double kPaper[] = {1.75, 1.28, 1.16};
  Chart chart{.title = "Speed over the GPU-NDP baseline", .x_label = "", .y_label = "times the baseline", .groups = {}};
  for (const TriMoeSystem& step : kSteps) chart.groups.emplace_back(step.name);
  double gains[std::size(kPaper)] = {1, 1, 1};  // geometric means
  for (const TriMoeModel& model : TriMoeModels()) {
    const auto seconds = [&](size_t step) { return context.study.Of(model, kAblationBatch, kSteps[step]).moe(); };
    Chart::Curve curve{.name = model.title, .points = {}};
    for (size_t step = 0; step < std::size(kSteps); ++step) {
      curve.points.push_back({static_cast<double>(step), seconds(0) / seconds(step)});
    }
    chart.curves.push_back(std::move(curve));
    for (size_t i = 0; i < std::size(kPaper); ++i) {
      gains[i] *= std::pow(seconds(i) / seconds(i + 1), 1.0 / static_cast<double>(TriMoeModels().size()));
    }
    context.notes.push_back(
        absl::StrFormat("One part after the other, %s: + CPU %.2f, + refinement %.2f, + relayout %.2f", model.title,
                        seconds(0) / seconds(1), seconds(1) / seconds(2), seconds(2) / seconds(3)));
  }
  for (size_t i = 0; i < std::size(kPaper); ++i) {
    figure.claims.push_back({.what = absl::StrCat("gain of ", i < 2 ? kSteps[i + 1].name : "+ relayout"),
                             .paper = kPaper[i],
                             .section = "5.3",
                             .ours = gains[i]});
  }
  figure.charts.push_back(std::move(chart));
}

}  // namespace moestro::cli
