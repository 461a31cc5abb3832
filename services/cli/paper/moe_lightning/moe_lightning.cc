#include "services/cli/paper/moe_lightning/moe_lightning.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "services/cli/paper/moe_lightning/figures.h"
#include "services/cli/plan/hardware_file.h"

namespace moestro::cli {
namespace {

constexpr const char* kMachines[] = {"gcp-t4", "gcp-2xt4", "gcp-4xt4", "gcp-l4", "gcp-l4-roofline", "2xa100"};

struct MoeLightningFigure {
  const char* id;
  const char* title;
  const char* about;
  void (*add)(const MoeLightningContext&, Figure&);
};

constexpr MoeLightningFigure kFigures[] = {
    {"1", "Figure 1: throughput over the host's memory",
     "Simulated with the rates fitted to S1 (p). The policy model chooses (p)'s batches; FlexGen has as many of "
     "its own micro-batches, of 8 requests, as the host has room for.",
     AddMemorySweep},
    {"rooflines", "Figures 4 and 5: rooflines of attention and experts",
     "The machine of Fig. 3. Paper: what its figures' program computes.", AddRooflines},
    {"batches", "Batch sizes of Figures 7 and 8 and of Table 4",
     "Chosen by the policy model at full rates. The host memory of \"416 GB\" is not published; with others, chosen by "
     "looking at the rows, the count is fitted.",
     AddBatches},
    {"throughput", "Figures 7 and 8, Table 4: generated tokens per second",
     "The published batches under CGOPipe, simulated: at a rate of copies and a rate of prefill that are fitted to "
     "some "
     "rows, half of the host's and 0.7 of the device's memory bandwidth, which were set by hand.",
     AddBatchThroughput},
    {"baselines", "Figure 7, Tables 4 and 5: FlexGen, FlexGen(c) and DeepSpeed",
     "Their published batches under their schedules, simulated: with the copy rate that FlexGen profiled, 5.43 GB/s, "
     "and "
     "the machine's rate of prefill as above. Nothing is fitted to these rows.",
     AddBaselines},
    {"9", "Figure 9: attention on the host, copies of the cache, experts",
     "Three rates, fitted to micro-batches of 256.", AddLatencies},
    {"10", "Figure 10: batches on two A100 with faster hosts",
     "The host is k times 200 GB, 100 GB/s and 1.6 TFLOP/s. The paper's figure has no printed values.", AddMachines},
};

}  // namespace

absl::StatusOr<MoeLightningMachines> ReadMoeLightningMachines(const std::string& directory) {
  MoeLightningMachines machines;
  for (const char* name : kMachines) {
    MOE_ASSIGN_OR_RETURN(machines[name], ReadLevels(absl::StrCat(directory, "/", name, ".json")));
  }
  return machines;
}

std::vector<std::string> MoeLightningFigures() {
  std::vector<std::string> ids;
  for (const MoeLightningFigure& figure : kFigures) ids.emplace_back(figure.id);
  return ids;
}

PaperReport MakeMoeLightningReport(const MoeLightningMachines& machines, const std::string& figure) {
  PaperReport report{
      .name = "moe-lightning",
      .title = "MoE-Lightning (ASPLOS '25)",
      .notes = {"Formulas and simulations of the paper's machines. Nothing below was run or measured here.",
                "Values of the paper and of the logs and programs beside it. (p): padded to the longest "
                "prompt. \"fitted\": chosen by these rows, so not counted.",
                "Not compared: 44 of the 48 values of FlexGen, FlexGen(c) and DeepSpeed in Fig. 7, whose "
                "batches are not printed."},
      .figures = {}};
  for (const MoeLightningFigure& candidate : kFigures) {
    if (!figure.empty() && figure != candidate.id) continue;
    Figure added{.id = candidate.id, .title = candidate.title, .about = candidate.about};
    candidate.add({machines, report.notes}, added);
    report.figures.push_back(std::move(added));
  }
  return report;
}

}  // namespace moestro::cli
