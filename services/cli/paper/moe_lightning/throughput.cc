#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/config.h"
#include "common/roofline/batch_policy.h"
#include "services/cli/paper/moe_lightning/figures.h"
#include "services/cli/paper/moe_lightning/published.h"

namespace moestro::cli {
namespace {

// Set by hand before any fit: what host and device reach of their memory bandwidth.
constexpr double kHostMemory = 0.5, kDeviceMemory = 0.7;

struct Rates {
  double copy_bytes_per_second = 0;
  double prefill_flops_per_second = 0;  // of a device
};

// A published run on its machine.
class Run {
 public:
  Run(const roofline::Machine& machine, const weights::ModelSpec& spec, const PublishedSetting& setting,
      const PublishedRun& run)
      : machine_(machine),
        model_(spec, DType::kBF16),
        workload_{.prompt = setting.prompt, .generate = run.generate},
        policy_{.micro_batch = run.micro_batch, .micro_batches = run.micro_batches()},
        requests_(static_cast<double>(run.requests)) {
    // A batch that the model has not room for keeps nothing on the device.
    policy_ = model_.WithBestShares(machine, workload_, policy_).value_or(policy_);
  }

  // FlexGen's schedule: attention on the device, to which the cache comes for every micro-batch.
  void CopyCache() { policy_.device_attention = true; }

  double TokensPerSecond(const Rates& rates) const {
    roofline::Machine machine = machine_;
    machine.link_bytes_per_second = rates.copy_bytes_per_second;
    machine.host.memory_bytes_per_second *= kHostMemory;
    machine.device.memory_bytes_per_second *= kDeviceMemory;
    const double step = model_.CostOf(machine, workload_, policy_).step_seconds;
    machine.device.flops_per_second = rates.prefill_flops_per_second * static_cast<double>(machine.devices);
    return Generated(model_.PrefillSeconds(machine, workload_, policy_), step);
  }

  double AtFullRates() const {
    return Generated(model_.PrefillSeconds(machine_, workload_, policy_),
                     model_.CostOf(machine_, workload_, policy_).step_seconds);
  }

 private:
  double Generated(double prefill, double step) const {
    return requests_ * workload_.generate / (prefill + (workload_.generate - 1) * step);
  }

  roofline::Machine machine_;
  roofline::BatchModel model_;
  roofline::BatchWorkload workload_;
  roofline::BatchPolicy policy_;
  double requests_;
};

struct Compared {
  const PublishedSetting* setting;
  const PublishedRun* published;
  Run run;
};

// Root mean square of the deviations from the published values.
double Deviation(const std::vector<Compared>& rows, const Rates& rates, bool fitted) {
  double squares = 0;
  int count = 0;
  for (const Compared& row : rows) {
    if (row.published->fits_rates != fitted) continue;
    const double deviation = row.run.TokensPerSecond(rates) / row.published->tokens_per_second - 1;
    squares += deviation * deviation;
    ++count;
  }
  return std::sqrt(squares / count);
}

// On a grid of 0.1 GB/s and 0.5 TFLOP/s.
Rates Fit(const std::vector<Compared>& rows) {
  Rates best;
  double least = std::numeric_limits<double>::infinity();
  for (int copy = 30; copy <= 250; ++copy) {
    for (int prefill = 1; prefill <= 80; ++prefill) {
      const Rates rates = {copy * 0.1e9, prefill * 0.5e12};
      const double deviation = Deviation(rows, rates, true);
      if (deviation < least) {
        least = deviation;
        best = rates;
      }
    }
  }
  return best;
}

const weights::ModelSpec& SpecOf(const std::string& model) {
  static auto* const specs = new std::map<std::string, weights::ModelSpec>;
  return specs->try_emplace(model, checkpoint::PublishedModel(model)).first->second;
}

// By machine and model, which share the rates.
std::map<std::pair<std::string, std::string>, std::vector<Compared>> Groups(const MoeLightningMachines& machines) {
  std::map<std::pair<std::string, std::string>, std::vector<Compared>> groups;
  for (const PublishedSetting& setting : PublishedSettings()) {
    for (const PublishedRun& run : setting.runs) {
      groups[{setting.machine, setting.model}].push_back(
          {&setting, &run, Run(machines.at(setting.machine), SpecOf(setting.model), setting, run)});
    }
  }
  return groups;
}

}  // namespace

void AddPolicies(const MoeLightningContext& context, Figure& figure) {
  // S1 (p), 128 generated.
  constexpr char kMachine[] = "gcp-t4", kModel[] = "mixtral-8x7b";
  const PublishedSetting setting{"S1 (p)", "Table 5", kMachine, kModel, 418, {}};
  const Rates rates = Fit(Groups(context.machines).at({kMachine, kModel}));
  struct Row {
    const char* what;
    PublishedRun run;
  };
  for (const auto& [what, run] : {Row{"FlexGen with its policy", {128, 9.5, 1112, 8}},
                                  Row{"FlexGen with MoE-Lightning's policy", {128, 16.816, 504, 36}},
                                  Row{"FlexGen with this policy and more requests", {128, 20.654, 1116, 36}}}) {
    Run modelled(context.machines.at(kMachine), SpecOf(kModel), setting, run);
    modelled.CopyCache();
    figure.claims.push_back({.what = absl::StrCat("tokens/s, ", what),
                             .paper = run.tokens_per_second,
                             .section = setting.section,
                             .ours = modelled.TokensPerSecond(rates),
                             .origin = Origin::kComputed});
  }
}

void AddBatchThroughput(const MoeLightningContext& context, Figure& figure) {
  const auto groups = Groups(context.machines);
  double least = std::numeric_limits<double>::infinity(), most = 0;
  std::map<const PublishedRun*, double> ours;
  std::vector<std::string> fits;
  for (const auto& [group, rows] : groups) {
    const Rates rates = Fit(rows);
    for (const Compared& row : rows) {
      ours[row.published] = row.run.TokensPerSecond(rates);
      const double ratio = row.run.AtFullRates() / row.published->tokens_per_second;
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
    fits.push_back(
        absl::StrFormat("%s on %s: %.1f GB/s of copies and %.1f TFLOP/s of prefill fitted; rows that were not fitted "
                        "deviate by %.0f %% "
                        "(root mean square)",
                        group.second, group.first, rates.copy_bytes_per_second / 1e9,
                        rates.prefill_flops_per_second / 1e12, 100 * Deviation(rows, rates, false)));
  }
  context.notes.push_back(absl::StrFormat(
      "At full rates, nothing fitted, the model gives %.1f to %.1f times the published tokens/s.", least, most));
  context.notes.insert(context.notes.end(), fits.begin(), fits.end());

  for (const PublishedSetting& setting : PublishedSettings()) {
    for (const PublishedRun& run : setting.runs) {
      figure.claims.push_back({.what = absl::StrFormat("tokens/s, %s, %g generated", setting.name, run.generate),
                               .paper = run.tokens_per_second,
                               .section = setting.section,
                               .ours = ours.at(&run),
                               .origin = Origin::kComputed,
                               .basis = run.fits_rates ? Basis::kFitted : Basis::kPredicted});
    }
  }
  for (const PublishedSetting& setting : PublishedSettings()) {
    if (setting.runs.size() < 2) continue;
    Chart chart{.title = absl::StrCat(setting.section, ", ", setting.name),
                .x_label = "tokens generated",
                .y_label = "tokens/s",
                .curves = {{.name = "MoE-Lightning", .origin = Origin::kCited, .points = {}},
                           {.name = "model", .origin = Origin::kComputed, .points = {}}}};
    for (const PublishedRun& run : setting.runs) {
      chart.curves[0].points.push_back({run.generate, run.tokens_per_second});
      chart.curves[1].points.push_back({run.generate, ours.at(&run)});
    }
    figure.charts.push_back(std::move(chart));
  }
}

}  // namespace moestro::cli
