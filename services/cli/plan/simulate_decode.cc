#include "services/cli/plan/simulate_decode.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/process/flag_check.h"
#include "services/cli/model/inspect.h"
#include "services/cli/output.h"
#include "services/cli/plan/simulate_ranks.h"
#include "services/decode/overlap/simulate.h"

namespace moestro::cli {
namespace {

constexpr int64_t kShort = 1024;  // "short prompts"
constexpr int64_t kLong = 32768;

// "Cloud-grade SLOs for local MoE", section 4.3 (Fig. 15 and 16): tokens per second of all sequences together.
struct DecodeFigure {
  const char* what;
  const char* model;
  int64_t batch;
  int64_t context;
  int lanes;
  double tokens_per_second;
  const char* figure;   // in which the paper has it
  bool fitted = false;  // decode_memory_fraction was chosen to give it (deploy/hardware/README.md): not a prediction
};
constexpr double kPaperSingle = 21.5;
constexpr DecodeFigure kPaperFigures[] = {
    {"one stream", "deepseek-v3", 1, kShort, 1, kPaperSingle, "15", true},
    {"one stream, 32K (about)", "deepseek-v3", 1, kLong, 1, 20, "15"},
    {"one stream, Kimi-K2", "kimi-k2", 1, kShort, 1, 22.4, "15"},
    {"two streams", "deepseek-v3", 2, kShort, 2, 33.6, "15"},
    {"two streams, 32K", "deepseek-v3", 2, kLong, 2, 31.1, "15"},
    {"batch 4 (1.58 x one stream)", "deepseek-v3", 4, kShort, 2, 1.58 * kPaperSingle, "16"},
    {"batch 6 (1.61 x one stream)", "deepseek-v3", 6, kShort, 2, 1.61 * kPaperSingle, "16"},
};

absl::StatusOr<nlohmann::ordered_json> Steps(const device::HardwareSpec& hardware, const SimulateDecodeFlags& flags) {
  const weights::ModelSpec spec = checkpoint::PublishedModel(flags.model);
  MOE_RETURN_IF_ERROR(CheckHasExperts(spec, flags.model, "--decode"));
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int64_t context : flags.context) {
    MOE_RETURN_IF_ERROR(CheckFlagRange("--context", context, 1, spec.max_position_embeddings - 1));
    for (const int64_t batch : flags.batch) {
      MOE_RETURN_IF_ERROR(CheckFlagRange("--batch", batch, 1, 64));
      MOE_ASSIGN_OR_RETURN(const double one, decode::SimulateDecodeStep(hardware, spec, batch, context, 1));
      nlohmann::ordered_json row = {{"context", context}, {"batch", batch}, {"one_batch_seconds", one}};
      if (batch > 1) {
        MOE_ASSIGN_OR_RETURN(row["two_batches_seconds"], decode::SimulateDecodeStep(hardware, spec, batch, context, 2));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Tokens per second of all sequences together. `fits`: whether the machine's rates were chosen for a figure.
absl::StatusOr<std::vector<PaperFigure>> SimulateFigures(const device::HardwareSpec& hardware, bool fits) {
  std::vector<PaperFigure> figures;
  for (const DecodeFigure& figure : kPaperFigures) {
    MOE_ASSIGN_OR_RETURN(const double step,
                         decode::SimulateDecodeStep(hardware, checkpoint::PublishedModel(figure.model), figure.batch,
                                                    figure.context, figure.lanes));
    figures.push_back({.what = figure.what,
                       .paper = figure.tokens_per_second,
                       .simulated = static_cast<double>(figure.batch) / step,
                       .fitted = fits && figure.fitted,
                       .figure = figure.figure,
                       .section = "4.3"});
  }
  return figures;
}

nlohmann::ordered_json ToJson(const PaperComparison& comparison) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = 0; i < comparison.built.size(); ++i) {
    const auto batch = static_cast<double>(kPaperFigures[i].batch);
    const auto outcome = [&](const PaperFigure& figure) {
      nlohmann::ordered_json json = {{"tokens_per_second", figure.simulated},
                                     {"latency_ms", 1e3 * batch / figure.simulated}};
      if (figure.fitted) {
        json["fitted"] = true;
      } else {
        json["deviation"] = figure.simulated / figure.paper - 1;
      }
      return json;
    };
    const PaperFigure& built = comparison.built[i];
    rows.push_back({{"what", built.what},
                    {"paper_tokens_per_second", built.paper},
                    {"paper_latency_ms", 1e3 * batch / built.paper},
                    {"built", outcome(built)},
                    {"paper_way", outcome(comparison.paper_way[i])}});
  }
  return rows;
}

void PrintSteps(const nlohmann::ordered_json& rows) {
  PrintText(" context  batch   one batch: ms  tokens/s   two batches: ms  tokens/s   gain\n");
  for (const auto& row : rows) {
    const auto batch = row["batch"].get<double>();
    const auto one = row["one_batch_seconds"].get<double>();
    PrintText(absl::StrFormat("%8d %6d %15.1f %9.1f", row["context"].get<int64_t>(), row["batch"].get<int64_t>(),
                              1e3 * one, batch / one));
    if (row.contains("two_batches_seconds")) {
      const auto two = row["two_batches_seconds"].get<double>();
      PrintText(absl::StrFormat(" %17.1f %9.1f %6.2f", 1e3 * two, batch / two, one / two));
    }
    PrintText("\n");
  }
}

void PrintComparison(const nlohmann::ordered_json& rows) {
  PrintText(
      "\nthe paper's section 4.3          tokens/s: paper   as built  deviation  paper's way  deviation   "
      "ms a step: paper  as built\n");
  const auto deviation = [](const nlohmann::ordered_json& way) {
    return way.contains("fitted") ? "fitted" : absl::StrFormat("%+.1f %%", 100 * way["deviation"].get<double>());
  };
  for (const auto& row : rows) {
    const auto &built = row["built"], &paper_way = row["paper_way"];
    PrintText(absl::StrFormat("%-32s %15.1f %10.1f %10s %12.1f %10s %18.1f %9.1f\n", row["what"].get<std::string>(),
                              row["paper_tokens_per_second"].get<double>(), built["tokens_per_second"].get<double>(),
                              deviation(built), paper_way["tokens_per_second"].get<double>(), deviation(paper_way),
                              row["paper_latency_ms"].get<double>(), built["latency_ms"].get<double>()));
  }
  PrintText(
      "As built: with the rates of the kernels here. Paper's way: with a rate of products that was fitted to its first "
      "line.\n");
}

}  // namespace

absl::StatusOr<PaperComparison> CompareDecode(const GpuMachine& machine) {
  PaperComparison comparison;
  MOE_ASSIGN_OR_RETURN(comparison.built, SimulateFigures(machine.built, machine.origin.empty()));
  MOE_ASSIGN_OR_RETURN(comparison.paper_way, SimulateFigures(machine.paper_way, true));
  return comparison;
}

absl::Status SimulateDecode(const GpuMachine& machine, const SimulateDecodeFlags& flags) {
  const device::HardwareSpec& hardware = machine.built;
  MOE_ASSIGN_OR_RETURN(const nlohmann::ordered_json steps, Steps(hardware, flags));
  nlohmann::ordered_json claims = nlohmann::ordered_json::array();
  if (flags.paper) {
    MOE_ASSIGN_OR_RETURN(const PaperComparison compared, CompareDecode(machine));
    claims = ToJson(compared);
  }
  if (flags.json) {
    PrintJson({{"hardware", hardware.name},
               {"model", flags.model},
               {"kernel_rates", machine.origin},
               {"decode", steps},
               {"paper", claims}},
              true);
    return absl::OkStatus();
  }
  PrintText(absl::StrCat(flags.model, ", FP8, decode with attention on the GPU and experts on the CPU of ",
                         hardware.name, "\n", RatesLine(machine)));
  PrintSteps(steps);
  if (flags.paper) PrintComparison(claims);
  return absl::OkStatus();
}

}  // namespace moestro::cli
