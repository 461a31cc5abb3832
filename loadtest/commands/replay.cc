#include "loadtest/workloads/replay.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "loadtest/commands/command.h"
#include "loadtest/commands/traffic_flags.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

struct ReplayFlags {
  std::string trace;
  double speed = 1;
};

absl::Status RunReplay(const ReplayFlags& flags, const SessionFlags& common, std::function<bool()> interrupted) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile("--trace", flags.trace));
  absl::StatusOr<std::vector<TraceEntry>> trace = ParseTrace(text);
  if (!trace.ok()) return Annotate(trace.status(), "--trace " + flags.trace);
  if (trace->empty()) return absl::InvalidArgumentError(absl::StrCat("--trace ", flags.trace, " has no request"));
  MOE_ASSIGN_OR_RETURN(const auto session, Session::Begin(common, "", std::move(interrupted)));
  const auto longest =
      std::ranges::max(*trace, {}, [](const TraceEntry& entry) { return entry.prompt_tokens + entry.output_tokens; });
  if (longest.prompt_tokens + longest.output_tokens > session->model().max_context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--trace ", flags.trace, ": the longest request has ", longest.prompt_tokens, " + ", longest.output_tokens,
        " tokens, the model's context holds ", session->model().max_context_tokens));
  }
  const size_t requests = trace->size();
  ReplayWorkload workload(*std::move(trace), flags.speed, session->model().vocab_size, common.seed);
  const RunResult result = session->Run(workload, [] { return std::string("replay"); });
  Report report{.workload = "replay", .interrupted = result.interrupted};
  report.facts.emplace_back("Trace",
                            absl::StrCat(requests, " requests, at ", ShortNumber(flags.speed), " × their speed"));
  AddCommonSections(result.records, result.seconds, common.slo, report);
  MOE_RETURN_IF_ERROR(session->Finish(report, result.records));
  return CheckAnyCompleted(result.records);
}

}  // namespace

void AddReplayCommand(FlagSet& program, std::vector<TrafficCommand>& commands) {
  const auto flags = std::make_shared<ReplayFlags>();
  FlagSet command = program.AddCommand("replay", "Send the requests of a trace file at their recorded times");
  command.Add("--trace", flags->trace, "JSON lines: arrival, prompt_tokens, output_tokens, ... (README.md)").Required();
  command.Add("--speed", flags->speed, "2: twice as fast as recorded").Range(0.001, 1000.0);
  commands.push_back({command, [flags](const SessionFlags& common, std::function<bool()> interrupted) {
                        return RunReplay(*flags, common, std::move(interrupted));
                      }});
}

}  // namespace moestro::loadtest
