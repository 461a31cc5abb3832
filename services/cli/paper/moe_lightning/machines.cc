#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/config.h"
#include "common/roofline/policy_search.h"
#include "services/cli/paper/moe_lightning/figures.h"

namespace moestro::cli {
namespace {

constexpr int kFactors = 10;

}  // namespace

void AddMachines(const MoeLightningContext& context, Figure& figure) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const roofline::BatchModel model(spec, DType::kBF16, roofline::PrefillRows::kMicroBatches);
  // The caption has 32 generated tokens, the program of the figure 128.
  for (const double generate : {32, 128}) {
    Chart weights{
        .title = absl::StrFormat("Figure 10, %g generated: share of the experts in the host's memory", generate),
        .x_label = "k",
        .y_label = "share"};
    Chart attention{.title = absl::StrFormat("Figure 10, %g generated: attention on the host", generate),
                    .x_label = "k",
                    .y_label = "1: on the host"};
    for (const double link : {100, 200, 300, 400, 500}) {
      const std::string name = absl::StrFormat("%g GB/s", link);
      weights.curves.push_back({.name = name, .origin = Origin::kComputed, .points = {}});
      attention.curves.push_back({.name = name, .origin = Origin::kComputed, .points = {}});
      for (int k = 1; k <= kFactors; ++k) {
        roofline::Machine machine = context.machines.at("2xa100");
        machine.host.memory_bytes *= k;
        machine.host.memory_bytes_per_second *= k;
        machine.host.flops_per_second *= k;
        machine.link_bytes_per_second = link * kGiB;
        const std::optional<roofline::PolicyChoice> choice =
            roofline::SearchPolicy(model, machine, {.prompt = 512, .generate = generate});
        if (!choice) continue;
        weights.curves.back().points.push_back({static_cast<double>(k), 1 - choice->policy.resident_weights});
        attention.curves.back().points.push_back({static_cast<double>(k), choice->policy.device_attention ? 0.0 : 1.0});
      }
    }
    figure.charts.push_back(std::move(weights));
    figure.charts.push_back(std::move(attention));
  }
}

}  // namespace moestro::cli
