#include "loadtest/workloads/ramp.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "loadtest/commands/command.h"
#include "loadtest/commands/traffic_flags.h"
#include "loadtest/report/ramp.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

struct RampFlags {
  RampOptions options;
  TrafficFlags traffic;
};

absl::Status RunRamp(RampFlags flags, const SessionFlags& common, std::function<bool()> interrupted) {
  RampOptions& options = flags.options;
  if (options.first > options.last) {
    return absl::InvalidArgumentError(
        absl::StrCat("--from ", options.first, " is more than --to ", options.last, ": lower --from or raise --to"));
  }
  if (!options.open_loop && options.last > common.max_in_flight) {
    return absl::InvalidArgumentError(absl::StrCat("--to ", options.last, " exceeds --max-in-flight ",
                                                   common.max_in_flight, ": raise --max-in-flight"));
  }
  if (!options.open_loop && options.first < 1)
    return absl::InvalidArgumentError("--from must be at least 1, except with --open-loop");
  MOE_ASSIGN_OR_RETURN(const auto session, Session::Begin(common, "", std::move(interrupted)));
  options.slo = common.slo;
  MOE_ASSIGN_OR_RETURN(options.traffic, ToTrafficOptions(flags.traffic, session->model(), common.seed));
  RampWorkload workload(options);
  const RunResult result = session->Run(workload, [&] { return StepName(options, workload.steps().back().level); });
  Report report{.workload = "ramp", .interrupted = result.interrupted};
  report.facts.emplace_back("Steps", absl::StrCat(options.open_loop ? "requests per second" : "requests at a time",
                                                  " from ", options.first, ", each ", ShortNumber(options.factor),
                                                  " × the previous one, of ", ShortNumber(options.step_seconds), " s"));
  AddTrafficFacts(flags.traffic, report);
  AddRampSection(options, workload.steps(), result.records, report);
  AddCommonSections(result.records, result.seconds, common.slo, report);
  MOE_RETURN_IF_ERROR(session->Finish(report, result.records));
  return CheckAnyCompleted(result.records);
}

}  // namespace

void AddRampCommand(FlagSet& program, std::vector<TrafficCommand>& commands) {
  const auto flags = std::make_shared<RampFlags>();
  FlagSet command =
      program.AddCommand("ramp", "Raise the load step by step until goodput no longer rises; reports the knee");
  command.AddSwitch("--open-loop", flags->options.open_loop,
                    "Steps are requests per second; otherwise requests at a time");
  command.Add("--from", flags->options.first, "Load of the first step").Range(0.001, 10000.0);
  command.Add("--factor", flags->options.factor, "Ratio of one step's load to the previous one's").Range(1.05, 100.0);
  command.Add("--to", flags->options.last, "Highest load of a step").Range(0.001, 10000.0);
  command
      .Add("--step-seconds", flags->options.step_seconds,
           "How long requests begin in a step; make it several times as long as a request")
      .Positive();
  AddTrafficFlags(command, flags->traffic);
  commands.push_back({command, [flags](const SessionFlags& common, std::function<bool()> interrupted) {
                        return RunRamp(*flags, common, std::move(interrupted));
                      }});
}

}  // namespace moestro::loadtest
