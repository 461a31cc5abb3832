#include "loadtest/workloads/paper.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "loadtest/commands/calibrate.h"
#include "loadtest/commands/command.h"
#include "loadtest/report/paper.h"
#include "loadtest/report/sections.h"
#include "loadtest/workloads/fixed.h"

namespace moestro::loadtest {
namespace {

struct PaperFlags {
  PaperOptions options;
  double seconds_each = 0;
  std::string compare_server;
  std::string name = "server";
  std::string compare_name = "compared";
};

// Runs both kinds of request once on every server, so that one-time costs are over.
absl::Status WarmUp(Session& session, const PaperOptions& options) {
  PromptMaker prompts(options.vocab_size, options.seed + 2);
  std::vector<Request> requests;
  for (int server = 0; server < options.servers; ++server) {
    for (Request request : {PrefillRequest(options, prompts), DecodeRequest(options, prompts)}) {
      constexpr uint32_t kEnough = 16;  // tokens
      request.server = server;
      request.max_tokens = std::min(request.max_tokens, kEnough);
      requests.push_back(std::move(request));
    }
  }
  FixedWorkload workload(std::move(requests), 1);
  const RunResult result = session.Run(workload, [] { return std::string("warm-up"); });
  for (const Record& record : result.records) {
    if (!record.completed() && !result.interrupted) return RequestError(record.status, "warm-up");
  }
  return result.interrupted ? absl::CancelledError("interrupted in the warm-up: nothing was measured")
                            : absl::OkStatus();
}

absl::Status Calibrate(Session& session, double seconds, PaperOptions* options) {
  const auto run = [&](const Request& request) -> absl::StatusOr<Record> {
    FixedWorkload workload({request}, 1);
    RunResult result = session.Run(workload, [] { return std::string("calibration"); });
    if (result.interrupted) return absl::CancelledError("interrupted in the calibration: nothing was measured");
    if (!result.records.front().completed()) return RequestError(result.records.front().status, "calibration");
    return std::move(result.records.front());
  };
  MOE_RETURN_IF_ERROR(CalibratePaper(seconds, session.model().max_context_tokens, run, options));
  std::fprintf(stderr, "calibrated: prompts of %d tokens, answers of %u tokens\n",
               static_cast<int>(options->prefill_prompt_tokens), options->decode_output_tokens);
  return absl::OkStatus();
}

absl::Status CheckContext(const PaperOptions& options, const ModelInfo& model) {
  if (options.prefill_prompt_tokens + options.prefill_output_tokens > model.max_context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("--prefill-tokens ", options.prefill_prompt_tokens,
                                                   ": the model's context holds ", model.max_context_tokens));
  }
  if (options.decode_prompt_tokens + options.decode_output_tokens > model.max_context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("--decode-tokens ", options.decode_output_tokens,
                                                   ": the model's context holds ", model.max_context_tokens));
  }
  return absl::OkStatus();
}

absl::Status RunPaper(PaperFlags flags, const SessionFlags& common, std::function<bool()> interrupted) {
  PaperOptions& options = flags.options;
  MOE_ASSIGN_OR_RETURN(const auto session, Session::Begin(common, flags.compare_server, std::move(interrupted)));
  options.servers = static_cast<int>(session->servers().size());
  options.vocab_size = session->model().vocab_size;
  options.seed = common.seed;
  if (flags.seconds_each > 0) MOE_RETURN_IF_ERROR(Calibrate(*session, flags.seconds_each, &options));
  MOE_RETURN_IF_ERROR(CheckContext(options, session->model()));
  MOE_RETURN_IF_ERROR(WarmUp(*session, options));
  PaperWorkload workload(options);
  const RunResult result = session->Run(workload, [&] { return workload.Progress(); });
  Report report{.workload = "paper", .interrupted = result.interrupted};
  report.facts.emplace_back("Prefill request",
                            absl::StrCat("prompt of ", options.prefill_prompt_tokens, " random ids, ",
                                         options.prefill_output_tokens, " tokens generated"));
  report.facts.emplace_back("Decode request", absl::StrCat("prompt of ", options.decode_prompt_tokens, " random ids, ",
                                                           options.decode_output_tokens, " tokens generated"));
  report.facts.emplace_back("Rounds", absl::StrCat(options.rounds, ", every load once in each",
                                                   options.servers > 1 ? ", on one server after the other" : ""));
  const std::vector<std::string> names = {flags.name, flags.compare_name};
  AddPaperSection(ComputePaperResults(workload.cells(), result.records),
                  {names.begin(), names.begin() + options.servers}, report);
  std::vector<Record> named = result.records;
  for (Record& record : named) {
    if (options.servers > 1) record.group = absl::StrCat(names[static_cast<size_t>(record.server)], ": ", record.group);
  }
  AddCommonSections(named, result.seconds, common.slo, report);
  MOE_RETURN_IF_ERROR(session->Finish(report, result.records));
  return CheckAnyCompleted(result.records);
}

}  // namespace

void AddPaperCommand(FlagSet& program, std::vector<TrafficCommand>& commands) {
  const auto flags = std::make_shared<PaperFlags>();
  PaperOptions& options = flags->options;
  FlagSet command =
      program.AddCommand("paper",
                         "One prefill and up to two decodes that begin at the same moment: 1P, 1D, 1P+1D, 2D, "
                         "1P+2D, each once per round, normalised to "
                         "one alone (Fig. 18 of \"Cloud-grade SLOs for local MoE\")");
  command.Add("--rounds", options.rounds, "Runs of each load").Range(1, 10000);
  command.Add("--prefill-tokens", options.prefill_prompt_tokens, "Prompt tokens of a prefill request")
      .Range(1, 1 << 20);
  command.Add("--prefill-output", options.prefill_output_tokens, "Tokens generated for a prefill request")
      .Range(1, 1000);
  command.Add("--decode-tokens", options.decode_output_tokens, "Tokens generated for a decode request")
      .Range(2, 1 << 20);
  command.Add("--decode-prompt", options.decode_prompt_tokens, "Prompt tokens of a decode request").Range(1, 1 << 20);
  command
      .Add("--seconds-each", flags->seconds_each,
           "Choose both lengths by a short probe so that each request takes this long alone; the paper: 20")
      .Range(0.0, 86400.0);
  command.Add("--pause", options.pause_seconds, "Seconds between two loads").NonNegative();
  command.Add("--compare-server", flags->compare_server,
              "A second router with the same model, measured alternately with the first (say, split and unified mode); "
              "lengths are calibrated on the first");
  command.Add("--name", flags->name, "Name of the server in the report");
  command.Add("--compare-name", flags->compare_name, "Name of the second server in the report");
  commands.push_back({command, [flags](const SessionFlags& common, std::function<bool()> interrupted) {
                        return RunPaper(*flags, common, std::move(interrupted));
                      }});
}

}  // namespace moestro::loadtest
