#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/config.h"
#include "common/roofline/policy_search.h"
#include "services/cli/paper/moe_lightning/figures.h"
#include "services/cli/paper/moe_lightning/published.h"

namespace moestro::cli {
namespace {

// Requests that a run put off: published batches have up to this share less than micro-batches could hold.
constexpr double kPutOff = 0.015;
constexpr double kEqual = 1e-9;  // of throughputs

// What the published runs do not tell.
struct Assumption {
  double large_host_bytes = 0;  // of the machines with two and four GPUs; 0: the file's
  // Their program has two forms of prefill's memory (PrefillRows); the other one for padded runs of S2.
  bool other_rows = false;
};

struct BatchSize {
  roofline::PolicyChoice ours;
  bool equal = false;
  bool as_fast = false;  // the model has the published batch as fast as ours
};

std::optional<BatchSize> Choose(const MoeLightningMachines& machines, const Assumption& assumption,
                                const PublishedSetting& setting, const PublishedRun& run) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(setting.model);
  roofline::Machine machine = machines.at(setting.machine);
  if (machine.devices > 1 && assumption.large_host_bytes > 0) machine.host.memory_bytes = assumption.large_host_bytes;
  const bool other_rows = assumption.other_rows && std::string(setting.name) == "S2 (p)";
  const roofline::BatchModel model(spec, DType::kBF16,
                                   other_rows ? roofline::PrefillRows::kMicroBatches : roofline::PrefillRows::kAll);
  const roofline::BatchWorkload workload = {.prompt = setting.prompt, .generate = run.generate};
  // Attention on the host, experts on the device, as in all published runs.
  const std::optional<roofline::PolicyChoice> ours = roofline::SearchPolicy(model, machine, workload, {});
  if (!ours) return std::nullopt;
  const auto requests = static_cast<double>(ours->policy.requests()), published = static_cast<double>(run.requests);
  BatchSize size{.ours = *ours, .equal = published <= requests && published >= (1 - kPutOff) * requests};
  const std::optional<roofline::BatchPolicy> theirs =
      model.WithBestShares(machine, workload, {.micro_batch = run.micro_batch, .micro_batches = run.micro_batches()});
  size.as_fast =
      theirs &&
      std::abs(model.CostOf(machine, workload, *theirs).tokens_per_second / ours->cost.tokens_per_second - 1) < kEqual;
  return size;
}

struct Counts {
  int equal = 0;
  int as_fast = 0;  // among the others
};

Counts Count(const MoeLightningMachines& machines, const Assumption& assumption) {
  Counts counts;
  for (const PublishedSetting& setting : PublishedSettings()) {
    for (const PublishedRun& run : setting.runs) {
      const std::optional<BatchSize> size = Choose(machines, assumption, setting, run);
      if (!size) continue;
      counts.equal += size->equal;
      counts.as_fast += !size->equal && size->as_fast;
    }
  }
  return counts;
}

void AddLoggedRun(const MoeLightningMachines& machines, Figure& figure) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const std::optional<roofline::PolicyChoice> choice = roofline::SearchPolicy(
      roofline::BatchModel(spec, DType::kBF16), machines.at("gcp-l4"), {.prompt = 77, .generate = 32}, {});
  const auto exact = [&](const char* what, double paper, double ours) {
    figure.claims.push_back({.what = absl::StrCat("the logged run on an L4: ", what),
                             .paper = paper,
                             .section = "log",
                             .ours = choice ? ours : kNotReached,
                             .origin = Origin::kComputed,
                             .basis = Basis::kExact});
  };
  const roofline::PolicyChoice found = choice.value_or(roofline::PolicyChoice{});
  exact("requests of a micro-batch", 324, static_cast<double>(found.policy.micro_batch));
  exact("micro-batches", 14, static_cast<double>(found.policy.micro_batches));
  exact("share of the experts that stays on the device", 0.055884688, found.policy.resident_weights);
  exact("seconds of a step", 4.957, found.cost.step_seconds);
  exact("tokens/s of decode", 944.66, found.cost.tokens_per_second);
}

}  // namespace

void AddBatches(const MoeLightningContext& context, Figure& figure) {
  AddLoggedRun(context.machines, figure);
  const Counts evidence = Count(context.machines, {});
  const auto count = [&](const char* what, int ours, Basis basis) {
    figure.claims.push_back({.what = what,
                             .paper = 36,
                             .section = "Figs. 7, 8, Table 4",
                             .ours = static_cast<double>(ours),
                             .origin = Origin::kComputed,
                             .basis = basis});
  };
  count("batches of 36 that are equal", evidence.equal, Basis::kPredicted);
  count("batches of 36 that are equal, or as fast by the model", evidence.equal + evidence.as_fast, Basis::kPredicted);
  const auto fitted = [&](const char* what, const Assumption& assumption) {
    const Counts counts = Count(context.machines, assumption);
    count(what, counts.equal + counts.as_fast, Basis::kFitted);
  };
  // The log's "192 GB" over 192 GiB, and the best of 18 values that were tried on S7, S8 and S9.
  constexpr double kRatio = 197880360960 / (192 * kGiB), kBest = 401.3 * kGiB;
  fitted("the same with hosts of 399.3 GiB in S6 to S9", {.large_host_bytes = 416 * kGiB * kRatio});
  fitted("the same with 401.3 GiB", {.large_host_bytes = kBest});
  fitted("the same with the other form of prefill's memory in S2 (p)", {.large_host_bytes = kBest, .other_rows = true});

  for (const PublishedSetting& setting : PublishedSettings()) {
    for (const PublishedRun& run : setting.runs) {
      const std::optional<BatchSize> size = Choose(context.machines, {}, setting, run);
      std::string what = absl::StrFormat("requests, %s, %g generated", setting.name, run.generate);
      if (size && size->as_fast && !size->equal) absl::StrAppend(&what, " (as fast)");
      figure.claims.push_back({.what = std::move(what),
                               .paper = static_cast<double>(run.requests),
                               .section = setting.section,
                               .ours = size ? static_cast<double>(size->ours.policy.requests()) : kNotReached,
                               .origin = Origin::kComputed});
    }
  }
}

}  // namespace moestro::cli
