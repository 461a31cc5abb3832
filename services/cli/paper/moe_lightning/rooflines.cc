#include <cmath>
#include <limits>
#include <utility>

#include "common/checkpoint/config.h"
#include "common/roofline/intensity.h"
#include "services/cli/paper/moe_lightning/figures.h"

namespace moestro::cli {
namespace {

constexpr double kContext = 512, kMicroBatch = 128;

// From 0.1 to 10,000 FLOP/byte.
Chart RoofsChart(const char* title, const roofline::Machine& machine) {
  Chart chart{.title = title, .x_label = "FLOP/byte", .y_label = "GFLOP/s", .log_x = true, .log_y = true};
  chart.curves = {{.name = "host memory", .origin = Origin::kComputed, .points = {}},
                  {.name = "device memory", .origin = Origin::kComputed, .points = {}},
                  {.name = "link", .origin = Origin::kComputed, .points = {}}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= 100; ++i) {
    const double intensity = std::pow(10, -1 + 0.05 * i);
    chart.curves[0].points.push_back({intensity, roofline::Attainable(machine.host, intensity) / 1e9});
    chart.curves[1].points.push_back({intensity, roofline::Attainable(machine.device, intensity) / 1e9});
    chart.curves[2].points.push_back(
        {intensity, roofline::Attainable(machine.device, kInfinity, machine.link_bytes_per_second, intensity) / 1e9});
  }
  return chart;
}

}  // namespace

void AddRooflines(const MoeLightningContext& context, Figure& figure) {
  const roofline::Machine& machine = context.machines.at("gcp-l4-roofline");
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const roofline::WeightCount expert = roofline::CountModel(spec, DType::kBF16).layers[0].expert;
  const auto exact = [&](const char* what, double paper, double ours, const char* section) {
    figure.claims.push_back({.what = what,
                             .paper = paper,
                             .section = section,
                             .ours = ours,
                             .origin = Origin::kComputed,
                             .basis = Basis::kExact});
  };
  // The figure's program leaves out sums of values, which are as many operations again.
  const auto attention = [&](double value_bytes) {
    return roofline::DecodeAttention(spec, 1, kContext, value_bytes, roofline::AttentionCount::kScoresAndSoftmax)
        .intensity();
  };
  const double link = machine.link_bytes_per_second;
  const double p1 = roofline::FirstTurningPoint(machine.host, link, std::numeric_limits<double>::infinity());
  exact("FLOP/byte of attention with a cache in F16", 2, attention(2), "Fig. 4");
  exact("FLOP/byte of attention with a cache in INT4", 8, attention(0.5), "Fig. 4");
  exact("FLOP/byte at P1", 81.25, p1, "Fig. 4");
  const double experts = roofline::DecodeExperts(spec, expert, kMicroBatch).intensity();
  const double p2 = roofline::SecondTurningPoint(machine.device, link, experts);
  const double of_a_request =
      roofline::DecodeExperts(spec, expert, 1).operations / (static_cast<double>(spec.num_experts) * expert.bytes);
  exact("FLOP/byte of experts in micro-batches of 128", 31.95, experts, "Fig. 5");
  exact("GFLOP/s of experts in micro-batches of 128", 9584, roofline::Attainable(machine.device, experts) / 1e9,
        "Fig. 5");
  exact("FLOP/byte at P2", 599, p2, "Fig. 5");
  exact("requests at P2 (about)", 2400, p2 / of_a_request, "Fig. 5");

  Chart fig4 = RoofsChart("Figure 4: attention of Mixtral 8x7B, 512 positions", machine);
  fig4.curves.push_back({.name = "attention on the host",
                         .origin = Origin::kComputed,
                         .points = {{attention(2), roofline::Attainable(machine.host, attention(2)) / 1e9, "F16"},
                                    {attention(0.5), roofline::Attainable(machine.host, attention(0.5)) / 1e9, "INT4"},
                                    {p1, machine.host.flops_per_second / 1e9, "P1"}},
                         .dots = true});
  figure.charts.push_back(std::move(fig4));
  Chart fig5 = RoofsChart("Figure 5: experts of Mixtral 8x7B in micro-batches of 128", machine);
  Chart::Curve requests{.name = "experts", .origin = Origin::kComputed, .points = {}, .dots = true};
  for (const auto& [count, label] : {std::pair(32.0, "N=32"), std::pair(128.0, "N=128"), std::pair(1024.0, "N=1024"),
                                     std::pair(p2 / of_a_request, "P2"), std::pair(16384.0, "N=16384")}) {
    requests.points.push_back(
        {count * of_a_request, roofline::Attainable(machine.device, experts, link, count * of_a_request) / 1e9, label});
  }
  fig5.curves.push_back(std::move(requests));
  figure.charts.push_back(std::move(fig5));
}

}  // namespace moestro::cli
