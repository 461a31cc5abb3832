#include "loadtest/workloads/verify.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "loadtest/commands/command.h"
#include "loadtest/report/sections.h"
#include "loadtest/report/verify.h"
#include "loadtest/workloads/fixed.h"

namespace moestro::loadtest {
namespace {

struct VerifyFlags {
  VerifyOptions options;
  std::string prompt_tokens = "1-2000";
  std::string output_tokens = "1-200";
  int concurrency = 16;
  bool allow_errors = false;
};

absl::Status RunVerify(VerifyFlags flags, const SessionFlags& common, std::function<bool()> interrupted) {
  VerifyOptions& options = flags.options;
  MOE_ASSIGN_OR_RETURN(options.prompt, Lengths::Parse("--prompt-tokens", flags.prompt_tokens));
  MOE_ASSIGN_OR_RETURN(options.output, Lengths::Parse("--output-tokens", flags.output_tokens));
  MOE_ASSIGN_OR_RETURN(const auto session, Session::Begin(common, "", std::move(interrupted)));
  options.vocab_size = session->model().vocab_size;
  options.max_context_tokens = session->model().max_context_tokens;
  options.seed = common.seed;
  const std::vector<Request> requests = MakeVerifyRequests(options);
  FixedWorkload side_by_side(requests, flags.concurrency);
  const RunResult crowded = session->Run(side_by_side, [] { return std::string("side by side"); });
  RunResult alone;
  if (!crowded.interrupted) {
    FixedWorkload one_by_one(MakeAloneRequests(requests, crowded.records), 1);
    alone = session->Run(one_by_one, [] { return std::string("alone"); });
  }
  const Verdict verdict = CompareTokens(crowded.records, alone.records);
  Report report{.workload = "verify", .interrupted = crowded.interrupted || alone.interrupted};
  report.facts.emplace_back("Requests",
                            absl::StrCat(options.requests, ", ", flags.concurrency, " at a time; prompts of ",
                                         flags.prompt_tokens, ", answers of ", flags.output_tokens, " tokens"));
  report.facts.emplace_back(
      "Shares", absl::StrCat(ShortNumber(options.cancelled_share), " cancelled, ", ShortNumber(options.sampled_share),
                             " sampled, ", ShortNumber(options.prefixed_share), " with one of ", options.prefixes,
                             " shared beginnings"));
  AddVerifySection(verdict, crowded.records, alone.records, flags.allow_errors, report);
  AddCommonSections(crowded.records, crowded.seconds, common.slo, report);
  MOE_RETURN_IF_ERROR(session->Finish(report, crowded.records));
  return CheckVerdict(verdict, crowded.records, alone.records, flags.allow_errors, report.interrupted);
}

}  // namespace

void AddVerifyCommand(FlagSet& program, std::vector<TrafficCommand>& commands) {
  const auto flags = std::make_shared<VerifyFlags>();
  VerifyOptions& options = flags->options;
  FlagSet command = program.AddCommand("verify",
                                       "Random requests side by side, some cancelled, then each again alone: the "
                                       "tokens must be the same. Exit code 1 if one differs, a request fails, or not "
                                       "all was compared. A node gives the same bits on every path "
                                       "with --mla-form absorbed on prefill");
  command.Add("--count", options.requests, "Requests").Range(1, 1'000'000);
  command.Add("--concurrency", flags->concurrency, "Requests at a time").Range(1, 4096);
  command.Add("--prompt-tokens", flags->prompt_tokens,
              "Length of prompts: a count (512), a range (100-2000) or lognormal:MEDIAN,SIGMA");
  command.Add("--output-tokens", flags->output_tokens, "Length of answers, in the same forms");
  command.Add("--cancelled", options.cancelled_share, "Share of cancelled requests").Range(0.0, 1.0);
  command.Add("--sampled", options.sampled_share, "Share of requests sampled with a seed; the others are greedy")
      .Range(0.0, 1.0);
  command.Add("--prefixed", options.prefixed_share, "Share of requests with a shared prefix").Range(0.0, 1.0);
  command.Add("--prefixes", options.prefixes, "Number of shared prefixes").Range(1, 10000);
  command.AddSwitch("--allow-errors", flags->allow_errors,
                    "Requests may fail (roles are killed meanwhile); their tokens are compared with their second run, "
                    "which must complete");
  commands.push_back({command, [flags](const SessionFlags& common, std::function<bool()> interrupted) {
                        return RunVerify(*flags, common, std::move(interrupted));
                      }});
}

}  // namespace moestro::loadtest
