#include "services/cli/paper/osdi/osdi.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "services/cli/paper/osdi/figures.h"
#include "services/cli/plan/simulate_concurrency.h"
#include "services/cli/plan/simulate_decode.h"
#include "services/cli/plan/simulate_ranks.h"
#include "services/cli/plan/stream_claims.h"

namespace moestro::cli {
namespace {

// What a figure takes from `moestro simulate --paper`.
enum Comparisons : unsigned { kNone = 0, kStream = 1, kRanks = 2, kDecode = 4 };

struct OsdiFigure {
  const char* id;
  const char* title;
  const char* about;
  unsigned compares;  // of Comparisons
  absl::Status (*add)(const OsdiContext&, Figure&);
};

constexpr OsdiFigure kFigures[] = {
    {"1", "Figure 1: what models demand of memory, and what devices have",
     "Capacity: all weights as published. Bandwidth: the weights that a token multiplies, 20 times a second.", kNone,
     AddModels},
    {"3", "Figure 3: a layer with experts, 20K tokens, on one device and on two",
     "Exchanges go through the host at half the rate of the bus, which is an assumption.", kStream | kRanks, AddLayer},
    {"13", "Figure 13: tokens per second of prompts",
     "SLP: one GPU. DSLP: two, by SmallEP. CPU: this project's CPU kernels on both sockets, by formulas. "
     "KTransformers: "
     "from the times that section 2.2.2 prints; beyond 8K tokens these are the paper's estimates.",
     kStream | kRanks, AddThroughput},
    {"14", "Figure 14: time to the first token",
     "The paper computes up to 4K tokens on the CPU, and streams longer prompts.", kStream | kRanks, AddFirstToken},
    {"15", "Figure 15: decode of FP8 weights", "Attention on the GPU, experts on the CPU.", kDecode, AddDecode},
    {"16", "Figure 16: decode of several sequences",
     "Sequences decode in two alternating batches. Bars are over one sequence of the same system; numbers above them "
     "are tokens per second. Of KTransformers the text has only two values.",
     kDecode, AddBatches},
    {"17", "Figure 17: decode of Q4_K_M weights",
     "The mixture of llama.cpp's Q4_K_M: downs of half of the layers have six bits. The CPU reads experts as fast as "
     "in "
     "FP8. Values of other programs, and of the paper's, are those in its text.",
     kNone, AddFourBits},
    {"18", "Figure 18: a prompt of 24K tokens and decode at the same time",
     "Each decode generates 480 tokens after 10. Prompt and decode share the CPUs' memory: the copy engine and every "
     "core get an equal rate of it while they read (deploy/hardware/README.md). The text of the paper has ratios only.",
     kStream, AddConcurrency},
    {"table1", "Table 1: GEMV of FP8 weights",
     "Measured by `moestro bench --filter table1` on the machine of the report that --measured names, which is not the "
     "paper's.",
     kNone, AddKernels},
    {"table2", "Table 2: MMLU of whole models",
     "Nothing here has run these models. `moestro eval --suite` asks the same questions of a node that serves one.",
     kNone, AddQuality},
    {"section 6", "Section 6: other CPUs, buses and GPU memories", "The same simulations with one number changed.",
     kStream, AddSensitivity},
};

std::string RatesNote(const GpuMachine& node) {
  if (node.origin == "measured") return "As built: the rates that this project's kernels reached on this kind of GPU.";
  return node.origin == "estimated" ? "As built: this project's kernels, at the rates that their instructions allow "
                                      "(loadtest/results/cuda-sass). They have not run on a GPU."
                                    : "As built: rates that the hardware file assumes.";
}

}  // namespace

std::vector<std::string> OsdiFigures() {
  std::vector<std::string> ids;
  for (const OsdiFigure& figure : kFigures) ids.emplace_back(figure.id);
  return ids;
}

absl::StatusOr<PaperReport> MakeOsdiReport(const OsdiInput& input, const std::string& figure) {
  PaperReport report{.name = "osdi",
                     .title = "Cloud-Grade SLOs for Local MoE Inference (OSDI '26)",
                     .notes = {absl::StrCat("Simulated on ", input.node.built.name, " and, without a GPU, on ",
                                            input.cpu.name, ". Nothing below was measured unless it says so."),
                               RatesNote(input.node),
                               "Paper's way: products of FP8 values at the rate that the file assumes, and one launch "
                               "per expert. \"fitted\": a number of the hardware file was chosen to give the value.",
                               "The paper prints few of its figures' values; only those in its text are compared."},
                     .figures = {}};
  const auto wanted = [&](const OsdiFigure& candidate) { return figure.empty() || figure == candidate.id; };
  unsigned compared = kNone;
  for (const OsdiFigure& candidate : kFigures) {
    if (!wanted(candidate)) continue;
    compared |= candidate.compares;
    // Before all others, which take seconds.
    if (candidate.add == AddConcurrency) {
      MOE_RETURN_IF_ERROR(Annotate(CheckConcurrency(input.node.built), candidate.title));
    }
  }
  PaperComparison stream, ranks, decode;
  if (compared & kStream) {
    MOE_ASSIGN_OR_RETURN(stream, CompareStream(input.node, {}, {}));
  }
  if (compared & kRanks) {
    MOE_ASSIGN_OR_RETURN(ranks, CompareRanks(input.node, {}));
  }
  if (compared & kDecode) {
    MOE_ASSIGN_OR_RETURN(decode, CompareDecode(input.node));
  }
  const OsdiContext context{input, checkpoint::PublishedModel("deepseek-v3")};
  for (const OsdiFigure& candidate : kFigures) {
    if (!wanted(candidate)) continue;
    Figure& added =
        report.figures.emplace_back(Figure{.id = candidate.id, .title = candidate.title, .about = candidate.about});
    for (const PaperComparison* comparison : {&stream, &ranks, &decode}) AddClaims(*comparison, added);
    MOE_RETURN_IF_ERROR(Annotate(candidate.add(context, added), candidate.title));
  }
  return report;
}

}  // namespace moestro::cli
