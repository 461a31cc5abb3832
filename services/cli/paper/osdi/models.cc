#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "services/cli/model/inspect.h"
#include "services/cli/paper/osdi/figures.h"

namespace moestro::cli {
namespace {

constexpr double kTokensPerSecond = 20;  // the service level of the figure

struct Demand {
  double parameters = 0;
  double bytes = 0;
  double bytes_per_second = 0;
};

absl::StatusOr<Demand> DemandOf(const std::string& model) {
  // The rates do not matter here; given ones are not measured.
  MOE_ASSIGN_OR_RETURN(const nlohmann::ordered_json facts,
                       InspectCheckpoint(model, {.memory_bytes_per_second = 1, .operations_per_second = 1}));
  const double bytes = absl::StartsWith(facts.at("weights").get<std::string>(), "FP8") ? 1 : 2;  // else BF16
  const auto parameters = facts.at("parameters").get<double>(), active = facts.at("active_parameters").get<double>();
  return Demand{parameters, bytes * parameters, kTokensPerSecond * bytes * active};
}

}  // namespace

absl::Status AddModels(const OsdiContext& context, Figure& figure) {
  Chart chart{.title = "Models and devices",
              .x_label = "GB of memory",
              .y_label = "GB/s",
              .log_x = true,
              .log_y = true,
              .curves = {{.name = "models", .origin = Origin::kComputed, .points = {}, .dots = true},
                         {.name = "devices, data sheets", .origin = Origin::kCited, .points = {}, .dots = true}}};
  for (const std::string& model : checkpoint::PublishedModels()) {
    if (absl::StartsWith(model, "gpt-oss")) continue;  // published in four bits, of which its config says nothing
    MOE_ASSIGN_OR_RETURN(const Demand demand, DemandOf(model));
    chart.curves[0].points.push_back({demand.bytes / 1e9, demand.bytes_per_second / 1e9, model});
  }
  std::stable_sort(chart.curves[0].points.begin(), chart.curves[0].points.end(),
                   [](const Chart::Point& a, const Chart::Point& b) { return a.x < b.x; });
  chart.curves[1].points = {{24, 1008, "RTX 4090"},
                            {32, 1792, "RTX 5090"},
                            {141, 4800, "H200"},
                            {1152, context.built().cpu_memory_bytes_per_second / 1e9, "2x EPYC 9355"}};
  figure.charts.push_back(std::move(chart));

  MOE_ASSIGN_OR_RETURN(const Demand v3, DemandOf("deepseek-v3"));
  MOE_ASSIGN_OR_RETURN(const Demand k2, DemandOf("kimi-k2"));
  const auto exact = [&](const char* what, double paper, double ours, const char* section) {
    figure.claims.push_back(ExactClaim(what, paper, ours, section));
  };
  exact("billion parameters, DeepSeek-V3 and R1", 671, v3.parameters / 1e9, "4.3");
  exact("GB of memory, 24 modules of 48 GB", 1150, 24 * 48, "4.1");
  exact("GB/s of memory, 24 channels of DDR5-6400", 1228, 24 * 6.4 * 8, "4.1");
  const auto about = [&](const std::string& what, double paper, double ours) {
    figure.claims.push_back(
        {.what = what, .paper = paper, .section = "2.1", .ours = ours, .origin = Origin::kComputed});
  };
  about("GB of weights, Kimi-K2 (roughly)", 1000, k2.bytes / 1e9);
  about("GB/s for 20 tokens/s, DeepSeek-V3 (approximately)", 1000, v3.bytes_per_second / 1e9);
  return absl::OkStatus();
}

}  // namespace moestro::cli
