#include "services/cli/paper/trimoe/trimoe.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/cli/paper/trimoe/figures.h"

namespace moestro::cli {
namespace {

struct TriMoeFigure {
  const char* id;
  const char* title;
  const char* about;
  void (*add)(const TriMoeContext&, Figure&);
};

constexpr TriMoeFigure kFigures[] = {
    {"workload", "Table 2 and sections 3.1, 4.3: models, choices of experts, predictor",
     "Fitted: the skew and the drift of synthetic choices, to the share of cold experts and to the accuracy of "
     "averages.",
     AddWorkload},
    {"6", "Figure 6: layers of experts in decode",
     "Averages over batches of 256, 512 and 768. The paper prints the range over its models only.", AddDecode},
    {"7", "Figure 7: end to end",
     "Prompts of 128 tokens, 256 generated: assumed. Prefill is the same for all systems. The three batches are "
     "averaged.",
     AddEndToEnd},
    {"table3", "Table 3: shares of time in which the domains compute",
     "Without waiting for weights; on average over models and batches.", AddBusyShares},
    {"8", "Figure 8: one part after the other, batch 512", "On average over the models, of which the paper names none.",
     AddAblation},
    {"9", "Figure 9: numbers of DIMMs and rates of the CPU, batch 512",
     "The paper prints no values. Its \"stabilizes\" and \"flattens\" are read as 5 and 10 %.", AddSensitivity},
    {"robustness", "Section 5.5: small batches", "Qwen3, over the strongest baseline.", AddRobustness},
    {"migration", "Section 5.5: migrations", "Batch 512.", AddMigration},
};

}  // namespace

absl::StatusOr<NearDataMachine> ReadTriMoeMachine(const std::string& directory) {
  return ReadNearDataMachine(absl::StrCat(directory, "/h100-xeon8470-ndp.json"));
}

std::vector<std::string> TriMoeFigures() {
  std::vector<std::string> ids;
  for (const TriMoeFigure& figure : kFigures) ids.emplace_back(figure.id);
  return ids;
}

PaperReport MakeTriMoeReport(const NearDataMachine& machine, experts::Contention contention,
                             const std::string& figure) {
  PaperReport report{
      .name = "trimoe",
      .title = "TriMoE",
      .notes =
          {"Plans on the paper's machine, by rates. Nothing below was run or measured, and processors on DIMMs are "
           "simulated in the paper, too.",
           "Choices of experts are synthetic. Fitted are their skew and drift, to the workload alone, and the number "
           "of links of a DIMM, to section 5.5.",
           contention == experts::Contention::kInternal
               ? "Contention: reads take a DIMM at its internal rate. The paper does not say; the other reading: "
                 "--contention host."
               : "Contention: reads take a DIMM at its channel's rate. The paper does not say; the other reading: "
                 "--contention internal."},
      .figures = {}};
  TriMoeStudy study(machine, contention);
  for (const TriMoeFigure& candidate : kFigures) {
    if (!figure.empty() && figure != candidate.id) continue;
    Figure added{.id = candidate.id, .title = candidate.title, .about = candidate.about};
    candidate.add({study, report.notes}, added);
    report.figures.push_back(std::move(added));
  }
  return report;
}

}  // namespace moestro::cli
