#include "loadtest/workloads/poisson.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "loadtest/commands/command.h"
#include "loadtest/commands/traffic_flags.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

struct PoissonFlags {
  double rate = 1;
  double duration = 60;
  TrafficFlags traffic;
};

absl::Status RunPoisson(const PoissonFlags& flags, const SessionFlags& common, std::function<bool()> interrupted) {
  MOE_ASSIGN_OR_RETURN(const auto session, Session::Begin(common, "", std::move(interrupted)));
  MOE_ASSIGN_OR_RETURN(const TrafficOptions traffic, ToTrafficOptions(flags.traffic, session->model(), common.seed));
  PoissonWorkload workload(flags.rate, flags.duration, traffic);
  const RunResult result = session->Run(workload, [] { return std::string("poisson"); });
  Report report{.workload = "poisson", .interrupted = result.interrupted};
  report.facts.emplace_back(
      "Arrivals", absl::StrCat("at random, ", flags.rate, " a second for ", ShortNumber(flags.duration), " s"));
  AddTrafficFacts(flags.traffic, report);
  AddCommonSections(result.records, result.seconds, common.slo, report);
  MOE_RETURN_IF_ERROR(session->Finish(report, result.records));
  return CheckAnyCompleted(result.records);
}

}  // namespace

void AddPoissonCommand(FlagSet& program, std::vector<TrafficCommand>& commands) {
  const auto flags = std::make_shared<PoissonFlags>();
  FlagSet command = program.AddCommand(
      "poisson", "Requests that arrive at random at a given rate, whether or not the server keeps up (open loop)");
  command.Add("--rate", flags->rate, "Requests per second, on average").Range(0.001, 10000.0);
  command.Add("--duration", flags->duration, "Seconds in which requests arrive").Positive();
  AddTrafficFlags(command, flags->traffic);
  commands.push_back({command, [flags](const SessionFlags& common, std::function<bool()> interrupted) {
                        return RunPoisson(*flags, common, std::move(interrupted));
                      }});
}

}  // namespace moestro::loadtest
