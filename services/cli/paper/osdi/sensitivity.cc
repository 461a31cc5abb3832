#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/roofline/work_count.h"
#include "services/cli/paper/osdi/figures.h"
#include "services/decode/overlap/simulate.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::cli {
namespace {

// Tokens per second with so much of the machine's DRAM bandwidth.
absl::StatusOr<double> Rate(const OsdiContext& context, double bandwidth, int64_t sequences) {
  device::HardwareSpec hardware = context.built();
  hardware.cpu_memory_bytes_per_second *= bandwidth;
  MOE_ASSIGN_OR_RETURN(const double step,
                       decode::SimulateDecodeStep(hardware, context.v3, sequences, kKibi, sequences > 1 ? 2 : 1));
  return static_cast<double>(sequences) / step;
}

absl::Status AddDram(const OsdiContext& context, Figure& figure) {
  Chart chart{
      .title = "Decode with other DRAM, as built", .x_label = "DRAM bandwidth over the node's", .y_label = "tokens/s"};
  for (const int64_t sequences : {1, 2}) {
    const char* name = sequences == 1 ? "one stream" : "two streams";
    Chart::Curve curve{.name = name, .points = {}};
    for (const double bandwidth : {0.25, 0.5, 0.75, 1.0, 1.25, 1.5}) {
      MOE_ASSIGN_OR_RETURN(const double rate, Rate(context, bandwidth, sequences));
      curve.points.push_back({bandwidth, rate});
    }
    figure.claims.push_back({.what = absl::StrFormat("decode with half the DRAM bandwidth, %s (linear)", name),
                             .paper = 0.5,
                             .section = "6",
                             .ours = curve.points[1].y / curve.points[3].y});
    chart.curves.push_back(std::move(curve));
  }
  figure.charts.push_back(std::move(chart));
  return absl::OkStatus();
}

absl::Status AddBus(const OsdiContext& context, Figure& figure) {
  Chart chart{.title = "Seconds to the first token with other buses, as built",
              .x_label = "GB/s of the bus",
              .y_label = "seconds",
              .log_x = true};
  for (const int64_t tokens : {8 * kKibi, 16 * kKibi, 32 * kKibi}) {
    Chart::Curve curve{.name = absl::StrFormat("%dK tokens", tokens / kKibi), .points = {}};
    for (const double rate : {0.25, 0.5, 1.0, 2.0}) {
      device::HardwareSpec hardware = context.built();
      hardware.copy_bytes_per_second *= rate;
      MOE_ASSIGN_OR_RETURN(const prefill::SimulatedPrefill simulated,
                           prefill::SimulatePrefill(hardware, context.v3, DType::kF8E4M3, model::MlaForm::kUnabsorbed,
                                                    tokens, {}, {.activations = context.activations()}));
      curve.points.push_back({hardware.copy_bytes_per_second / 1e9, simulated.report.counters.wall_seconds});
    }
    chart.curves.push_back(std::move(curve));
  }
  figure.charts.push_back(std::move(chart));
  return absl::OkStatus();
}

absl::Status AddRing(const OsdiContext& context, double expert_bytes, Figure& figure) {
  Chart chart{.title = "Seconds to the first token with shorter rings, as built",
              .x_label = "GB of the ring of experts",
              .y_label = "seconds",
              .log_x = true};
  for (const int64_t tokens : {8 * kKibi, 16 * kKibi, 48 * kKibi}) {
    Chart::Curve curve{.name = absl::StrFormat("%dK tokens", tokens / kKibi), .points = {}};
    for (const int64_t slots : {2, 8, 32, 64, 128, 256}) {
      MOE_ASSIGN_OR_RETURN(
          const prefill::SimulatedPrefill simulated,
          prefill::SimulatePrefill(context.built(), context.v3, DType::kF8E4M3, model::MlaForm::kUnabsorbed, tokens,
                                   {.ring_slots = slots}, {.activations = context.activations()}));
      curve.points.push_back({static_cast<double>(slots) * expert_bytes / 1e9, simulated.report.counters.wall_seconds});
    }
    chart.curves.push_back(std::move(curve));
  }
  figure.charts.push_back(std::move(chart));
  return absl::OkStatus();
}

}  // namespace

absl::Status AddSensitivity(const OsdiContext& context, Figure& figure) {
  const double expert = roofline::CountModel(context.v3, DType::kF8E4M3).expert_bytes();
  MOE_RETURN_IF_ERROR(AddDram(context, figure));
  MOE_RETURN_IF_ERROR(AddBus(context, figure));
  MOE_RETURN_IF_ERROR(AddRing(context, expert, figure));

  const weights::ModelSpec k2 = checkpoint::PublishedModel("kimi-k2");
  const auto exact = [&](const char* what, double paper, double ours, const char* section) {
    figure.claims.push_back(ExactClaim(what, paper, ours, section));
  };
  const auto layers = static_cast<double>(context.v3.num_moe_layers());
  const auto v3_experts = static_cast<double>(context.v3.num_experts), k2_experts = static_cast<double>(k2.num_experts);
  exact("GB of a ring with a layer's experts, DeepSeek-V3", 11.3, v3_experts * expert / 1e9, "6");
  exact("GB of a ring with a layer's experts, Kimi-K2", 16.9, k2_experts * expert / 1e9, "6");
  exact("GB of it on each of two GPUs, DeepSeek-V3", 5.6, v3_experts * expert / 2e9, "6");
  exact("GB of it on each of two GPUs, Kimi-K2", 8.5, k2_experts * expert / 2e9, "6");
  exact("thousand matrices of experts, DeepSeek-V3", 44.5, layers * v3_experts * 3 / 1e3, "3.1");
  const double taken = layers * static_cast<double>(context.v3.experts_per_token) * expert;  // of a byte each
  exact("billion parameters of a token's experts, DeepSeek-V3", 20.4, taken / 1e9, "2.2.1");
  exact("GB/s of KTransformers' decode, from its published figures", 221, 16 * taken / 2 / 0.74 / 1e9, "2.2.1");
  const device::HardwareSpec& hardware = context.built();
  MOE_ASSIGN_OR_RETURN(const double rate, Rate(context, 1, 1));
  figure.claims.push_back({.what = "share of the experts in the time of a token (about)",
                           .paper = 0.6,
                           .section = "6",
                           .ours = rate * taken / (hardware.cpu_memory_bytes_per_second * hardware.cpu_memory_fraction),
                           .basis = Basis::kFitted});
  return absl::OkStatus();
}

}  // namespace moestro::cli
