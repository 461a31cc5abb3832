#include "services/cli/routing/trace_commands.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/experts/synthetic_trace.h"
#include "common/process/flag_check.h"
#include "services/cli/output.h"
#include "services/cli/routing/routing_text.h"

namespace moestro::cli {
namespace {

// One line on a terminal's stderr, after two seconds of work.
class Progress {
 public:
  explicit Progress(const char* what) : what_(what) {}
  ~Progress() {
    if (shown_) std::fputc('\n', stderr);
  }
  void Show(double done) {
    if (!terminal_ || std::chrono::steady_clock::now() - begun_ < std::chrono::seconds(2)) return;
    std::fprintf(stderr, "\r%s %.0f %%", what_, 100 * done);
    shown_ = true;
  }

 private:
  const char* const what_;
  const bool terminal_ = IsTerminal(StandardStream::kStderr);
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

struct MakeFlags {
  experts::SyntheticRouting routing;
  std::string out;
};

struct FitFlags {
  experts::SyntheticRouting routing{.layers = 2, .tokens = 32};
  double cold_share = 0.08;
  double accuracy = 0.78;
  bool json = false;
};

struct ImportFlags {
  std::string file;
  std::string out;
  int64_t experts = 0;
  RoutingPasses passes;
};

absl::Status Make(const MakeFlags& flags) {
  MOE_RETURN_IF_ERROR(experts::CheckRouting(flags.routing));
  experts::SyntheticTrace trace(flags.routing);
  auto writer = model::RoutingTraceWriter::Create(flags.out, trace.model());
  MOE_RETURN_IF_ERROR(Annotate(writer.status(), "--out"));
  Progress progress("making passes");
  model::RoutingStep step;
  for (int64_t pass = 0; trace.Next(step); ++pass) {
    progress.Show(static_cast<double>(pass) / static_cast<double>(trace.passes()));
    MOE_RETURN_IF_ERROR((*writer)->Append(step));
  }
  return absl::OkStatus();
}

absl::Status Fit(const FitFlags& flags) {
  MOE_RETURN_IF_ERROR(experts::CheckRouting(flags.routing));
  absl::StatusOr<experts::RoutingFit> found = absl::UnknownError("");
  {
    Progress progress("fitting");
    found =
        experts::FitRouting(flags.routing, flags.cold_share, flags.accuracy, [&](double done) { progress.Show(done); });
  }
  MOE_RETURN_IF_ERROR(found.status());
  if (flags.json) {
    PrintJson({{"popularity", found->popularity},
               {"drift", found->drift},
               {"cold_share", found->cold_share},
               {"average_accuracy", found->accuracy}},
              true);
    return absl::OkStatus();
  }
  PrintText(absl::StrFormat(
      "--popularity %.4f --drift %.4f\n\nshare of choices on the coldest 70 %%  %.4f (wanted %.4f)\n"
      "accuracy of a moving average          %.4f (wanted %.4f)\n",
      found->popularity, found->drift, found->cold_share, flags.cold_share, found->accuracy, flags.accuracy));
  return absl::OkStatus();
}

absl::Status Import(const ImportFlags& flags) {
  std::ifstream file(flags.file);
  if (!file) return absl::InvalidArgumentError(absl::StrCat(flags.file, ": cannot be read"));
  absl::StatusOr<RoutingText> text = ReadRoutingText(file, flags.experts);
  MOE_RETURN_IF_ERROR(Annotate(text.status(), flags.file));
  auto writer = model::RoutingTraceWriter::Create(flags.out, text->model);
  MOE_RETURN_IF_ERROR(Annotate(writer.status(), "--out"));
  return WritePasses(*text, flags.passes, **writer);
}

// What make and fit have in common.
void AddRoutingFlags(FlagSet& command, experts::SyntheticRouting& routing) {
  command.Add("--experts", routing.experts, "Routed experts of a layer");
  command.Add("--layers", routing.layers, "Layers with experts");
  command.Add("--per-token", routing.per_token, "Experts that a token chooses in a layer");
  command.Add("--sequence-bias", routing.bias,
              "Deviation of each sequence's own taste, like --popularity; 0: all sequences are alike");
  command.Add("--sequences", routing.sequences, "Sequences that decode together: tokens of a pass");
  command.Add("--tokens", routing.tokens, "Tokens that each generates");
  command.Add("--seed", routing.seed, "Same flags and seed, same bytes");
}

void AddMake(FlagSet& routing, std::vector<Command>& commands) {
  const auto flags = std::make_shared<MakeFlags>();
  FlagSet command = routing.AddCommand(
      "make", "Write a trace that no model made: choices with a wanted skew, which changes as fast as wanted");
  AddRoutingFlags(command, flags->routing);
  command.Add("--popularity", flags->routing.popularity,
              "Deviation of the logarithm of an expert's popularity, 0 to 8; 0: all experts are alike. "
              "'moestro routing fit' finds it");
  command.Add("--drift", flags->routing.drift,
              "How much popularity changes in a pass: 0: never, 1: every pass has another one");
  command.Add("--prompt-tokens", flags->routing.prompt_tokens,
              "Tokens of each sequence's prompt, a pass of its own; 0: no prompts");
  command.Add("--predicted-layers", flags->routing.predicted_layers,
              "Earlier layers of which each layer's choice is foreseen, 0 to 3");
  command.Add("--prediction-error", flags->routing.prediction_error,
              "Deviation by which the layer before sees logits wrongly, the n-th layer before sqrt(n) times it");
  command.Add("--out", flags->out, "The trace").Required();
  commands.push_back({command, [flags] { return Make(*flags); }});
}

void AddFit(FlagSet& routing, std::vector<Command>& commands) {
  const auto flags = std::make_shared<FitFlags>();
  FlagSet command =
      routing.AddCommand("fit", "Find the --popularity and --drift of 'make' for a wanted skew and predictability");
  AddRoutingFlags(command, flags->routing);
  command.Add("--cold-share", flags->cold_share,
              "Wanted share of a pass's choices that the coldest 70 % of a layer's experts get");
  command.Add("--accuracy", flags->accuracy,
              "Wanted share of experts that are hot, warm or cold as a moving average of loads foresees");
  command.AddSwitch("--json", flags->json, "JSON");
  commands.push_back({command, [flags] { return Fit(*flags); }});
}

void AddImport(FlagSet& routing, std::vector<Command>& commands) {
  const auto flags = std::make_shared<ImportFlags>();
  FlagSet command = routing.AddCommand(
      "import",
      "Make a trace of choices that others recorded, as text: lines of 'SEQUENCE TOKEN LAYER EXPERT[:WEIGHT] "
      "EXPERT[:WEIGHT] ...', in any order");
  command.Add("file", flags->file, "The text").Required();
  command.Add("--experts", flags->experts, "Routed experts of a layer: the text names chosen ones only")
      .Required()
      .Range(1, 65535);
  command
      .Add("--prompt-tokens", flags->passes.prompt_tokens,
           "The first tokens of each sequence that were its prompt, a pass of its own")
      .NonNegative();
  command.Add("--together", flags->passes.together, "Sequences that generated together, a token each a pass")
      .Range(int64_t{1}, model::kMaxPassTokens);
  command.Add("--out", flags->out, "The trace").Required();
  commands.push_back({command, [flags] { return Import(*flags); }});
}

}  // namespace

void AddTraceCommands(FlagSet& routing, std::vector<Command>& commands) {
  AddMake(routing, commands);
  AddFit(routing, commands);
  AddImport(routing, commands);
}

}  // namespace moestro::cli
