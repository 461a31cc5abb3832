#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/config.h"
#include "common/roofline/batch_policy.h"
#include "common/roofline/policy_search.h"
#include "services/cli/paper/moe_lightning/figures.h"
#include "services/cli/paper/moe_lightning/pipeline.h"
#include "services/cli/paper/moe_lightning/published.h"

namespace moestro::cli {
namespace {

// Set by hand before any fit: what host and device reach of their memory bandwidth.
constexpr double kHostMemory = 0.5, kDeviceMemory = 0.7;
// What FlexGen's own profile of the bus says, in the logs beside the paper.
constexpr double kBaselineCopy = 5.43e9;
constexpr char kBaselineModel[] = "mixtral-8x7b";

struct Rates {
  double copy_bytes_per_second = 0;
  double prefill_flops_per_second = 0;  // of a device
};

// A published run on its machine.
class Run {
 public:
  Run(const roofline::Machine& machine, const weights::ModelSpec& spec, double prompt, const PublishedRun& run,
      Schedule schedule = Schedule::kCgoPipe)
      : machine_(machine),
        spec_(spec),
        model_(spec, DType::kBF16),
        workload_{.prompt = prompt, .generate = run.generate},
        policy_{.micro_batch = run.micro_batch,
                .micro_batches = run.micro_batches(),
                .device_attention = schedule == Schedule::kFlexGen || schedule == Schedule::kWholeLayer},
        schedule_(schedule),
        requests_(static_cast<double>(run.requests)) {
    // A batch that the model has not room for keeps nothing on the device.
    policy_ = model_.WithBestShares(machine, workload_, policy_).value_or(policy_);
  }

  double StepSeconds(double copy_bytes_per_second) const {
    roofline::Machine machine = machine_;
    machine.link_bytes_per_second = copy_bytes_per_second;
    machine.host.memory_bytes_per_second *= kHostMemory;
    machine.device.memory_bytes_per_second *= kDeviceMemory;
    return static_cast<double>(spec_.num_layers) * SimulateLayer(machine, spec_, workload_, policy_, schedule_).layer;
  }
  double TokensPerSecond(const Rates& rates) const {
    return TokensPerSecond(rates, StepSeconds(rates.copy_bytes_per_second));
  }
  double TokensPerSecond(const Rates& rates, double step) const {
    roofline::Machine machine = machine_;
    machine.link_bytes_per_second = rates.copy_bytes_per_second;
    machine.device.flops_per_second = rates.prefill_flops_per_second * static_cast<double>(machine.devices);
    return Generated(model_.PrefillSeconds(machine, workload_, policy_), step);
  }

  // By the policy model's formula.
  double AtFullRates() const {
    return Generated(model_.PrefillSeconds(machine_, workload_, policy_),
                     model_.CostOf(machine_, workload_, policy_).step_seconds);
  }

 private:
  double Generated(double prefill, double step) const {
    return requests_ * workload_.generate / (prefill + (workload_.generate - 1) * step);
  }

  roofline::Machine machine_;
  const weights::ModelSpec& spec_;
  roofline::BatchModel model_;
  roofline::BatchWorkload workload_;
  roofline::BatchPolicy policy_;
  Schedule schedule_;
  double requests_;
};

struct Compared {
  const PublishedSetting* setting;
  const PublishedRun* published;
  Run run;
};

// Root mean square of the deviations from the published values.
class MeanDeviation {
 public:
  void Add(const Compared& row, double tokens_per_second) {
    const double deviation = tokens_per_second / row.published->tokens_per_second - 1;
    squares_ += deviation * deviation;
    ++count_;
  }
  double value() const { return std::sqrt(squares_ / count_); }

 private:
  double squares_ = 0;
  int count_ = 0;
};

double DeviationOfOthers(const std::vector<Compared>& rows, const Rates& rates) {
  MeanDeviation deviation;
  for (const Compared& row : rows) {
    if (!row.published->fits_rates) deviation.Add(row, row.run.TokensPerSecond(rates));
  }
  return deviation.value();
}

// On a grid of 0.1 GB/s and 0.5 TFLOP/s.
Rates Fit(const std::vector<Compared>& rows) {
  Rates best;
  double least = std::numeric_limits<double>::infinity();
  for (int copy = 30; copy <= 250; ++copy) {
    std::vector<std::pair<const Compared*, double>> steps;
    for (const Compared& row : rows) {
      if (row.published->fits_rates) steps.emplace_back(&row, row.run.StepSeconds(copy * 0.1e9));
    }
    for (int prefill = 1; prefill <= 80; ++prefill) {
      const Rates rates = {copy * 0.1e9, prefill * 0.5e12};
      MeanDeviation deviation;
      for (const auto& [row, step] : steps) deviation.Add(*row, row->run.TokensPerSecond(rates, step));
      if (deviation.value() < least) {
        least = deviation.value();
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
          {&setting, &run, Run(machines.at(setting.machine), SpecOf(setting.model), setting.prompt, run)});
    }
  }
  return groups;
}

// Fig. 1: what both systems compute there, and FlexGen's micro-batch for it. The figure does not say; this is the run
// of Table 5.
const PublishedBaseline& Swept() {
  return *std::ranges::find_if(PublishedBaselines(), [](const PublishedBaseline& baseline) {
    return std::string_view(baseline.setting) == "S1 (p)" && std::string_view(baseline.system) == "FlexGen" &&
           baseline.run.generate == 128;
  });
}
roofline::BatchWorkload SweptWorkload() { return {.prompt = Swept().prompt, .generate = Swept().run.generate}; }
// Of the highest throughput: who has it has reached the plateau.
constexpr double kPlateau = 0.95;

// The policy model's batch for this memory; none: the weights do not fit.
std::optional<PublishedRun> LightningBatch(const roofline::BatchModel& model, const roofline::Machine& machine) {
  const auto choice = roofline::SearchPolicy(model, machine, SweptWorkload(), {.device_experts = true});
  if (!choice) return std::nullopt;
  return PublishedRun{.generate = SweptWorkload().generate,
                      .requests = choice->policy.requests(),
                      .micro_batch = choice->policy.micro_batch};
}

// As many of FlexGen's micro-batches as the host has room for.
std::optional<PublishedRun> FlexGenBatch(const roofline::BatchModel& model, const roofline::Machine& machine) {
  roofline::BatchPolicy policy = {.micro_batch = Swept().run.micro_batch, .micro_batches = 0, .device_attention = true};
  const double room = roofline::kHostMemoryShare * machine.host.memory_bytes;
  const double none = model.CostOf(machine, SweptWorkload(), policy).host_bytes;
  policy.micro_batches = 1;
  const double one = model.CostOf(machine, SweptWorkload(), policy).host_bytes;
  policy.micro_batches = static_cast<int64_t>((room - none) / (one - none));
  if (policy.micro_batches < 1) return std::nullopt;
  return PublishedRun{
      .generate = SweptWorkload().generate, .requests = policy.requests(), .micro_batch = policy.micro_batch};
}

// The least x with kPlateau of the curve's highest y.
double PlateauBegin(const Chart::Curve& curve) {
  double most = 0;
  for (const Chart::Point& point : curve.points) most = std::max(most, point.y);
  const auto reached =
      std::ranges::find_if(curve.points, [&](const Chart::Point& point) { return point.y >= kPlateau * most; });
  return reached->x;
}

}  // namespace

void AddMemorySweep(const MoeLightningContext& context, Figure& figure) {
  const weights::ModelSpec& spec = SpecOf(kBaselineModel);
  const roofline::BatchModel model(spec, DType::kBF16);
  // Both at the rates that MoE-Lightning's own runs gave.
  const Rates rates = Fit(Groups(context.machines).at({Swept().machine, kBaselineModel}));
  roofline::Machine machine = context.machines.at(Swept().machine);
  const double whole = machine.host.memory_bytes;
  Chart chart{.title = "Figure 1: Mixtral 8x7B on a T4, 128 tokens generated",
              .x_label = "GB of the host's memory",
              .y_label = "tokens/s",
              .curves = {{.name = "MoE-Lightning (p)", .origin = Origin::kSimulated, .points = {}},
                         {.name = "FlexGen's policy", .origin = Origin::kSimulated, .points = {}}}};
  constexpr int kSteps = 64;  // to twice the machine's memory
  for (int i = 1; i <= kSteps; ++i) {
    machine.host.memory_bytes = 2 * whole * i / kSteps;
    const auto add = [&](size_t curve, const std::optional<PublishedRun>& batch, Schedule schedule) {
      if (!batch) return;
      const Run run(machine, spec, SweptWorkload().prompt, *batch, schedule);
      chart.curves[curve].points.push_back({machine.host.memory_bytes / 1e9, run.TokensPerSecond(rates)});
    };
    add(0, LightningBatch(model, machine), Schedule::kCgoPipe);
    add(1, FlexGenBatch(model, machine), Schedule::kFlexGen);
  }
  figure.claims.push_back({.what = "the host's memory at 95 % of the highest throughput, FlexGen's policy over (p)",
                           .paper = 2,
                           .bound = Bound::kAtLeast,
                           .section = "Abstract, Fig. 1",
                           .ours = PlateauBegin(chart.curves[1]) / PlateauBegin(chart.curves[0]),
                           .origin = Origin::kSimulated});
  figure.charts.push_back(std::move(chart));
}

void AddBaselines(const MoeLightningContext& context, Figure& figure) {
  const auto groups = Groups(context.machines);
  std::map<std::string, double> prefill;  // by machine, as fitted to MoE-Lightning's rows
  for (const PublishedBaseline& baseline : PublishedBaselines()) {
    if (!prefill.contains(baseline.machine)) {
      prefill[baseline.machine] = Fit(groups.at({baseline.machine, kBaselineModel})).prefill_flops_per_second;
    }
    const Run run(context.machines.at(baseline.machine), SpecOf(kBaselineModel), baseline.prompt, baseline.run,
                  baseline.schedule);
    figure.claims.push_back({.what = absl::StrFormat("tokens/s, %s, %g generated: %s", baseline.setting,
                                                     baseline.run.generate, baseline.system),
                             .paper = baseline.run.tokens_per_second,
                             .section = baseline.section,
                             .ours = run.TokensPerSecond({kBaselineCopy, prefill[baseline.machine]}),
                             .origin = Origin::kSimulated});
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
                        rates.prefill_flops_per_second / 1e12, 100 * DeviationOfOthers(rows, rates)));
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
                               .origin = Origin::kSimulated,
                               .basis = run.fits_rates ? Basis::kFitted : Basis::kPredicted});
    }
  }
  for (const PublishedSetting& setting : PublishedSettings()) {
    if (setting.runs.size() < 2) continue;
    Chart chart{.title = absl::StrCat(setting.section, ", ", setting.name),
                .x_label = "tokens generated",
                .y_label = "tokens/s",
                .curves = {{.name = "MoE-Lightning", .origin = Origin::kCited, .points = {}},
                           {.name = "simulated", .origin = Origin::kSimulated, .points = {}}}};
    for (const PublishedRun& run : setting.runs) {
      chart.curves[0].points.push_back({run.generate, run.tokens_per_second});
      chart.curves[1].points.push_back({run.generate, ours.at(&run)});
    }
    figure.charts.push_back(std::move(chart));
  }
}

}  // namespace moestro::cli
