#include "loadtest/workloads/batch.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "loadtest/commands/command.h"
#include "loadtest/commands/traffic_flags.h"
#include "loadtest/report/batch.h"
#include "loadtest/report/sections.h"
#include "loadtest/workloads/fixed.h"

namespace moestro::loadtest {
namespace {

struct BatchFlags {
  std::string lengths = "mtbench";
  int64_t generate = 32;
  int count = 256;
  bool padded = false;
};

absl::StatusOr<std::vector<int64_t>> Lengths(const BatchFlags& flags, uint64_t seed) {
  for (const BatchWorkload& workload : kBatchWorkloads) {
    if (flags.lengths == workload.name) return DrawLengths(workload, flags.count, seed);
  }
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile("--lengths", flags.lengths));
  absl::StatusOr<std::vector<int64_t>> lengths = ReadLengths(text, flags.count);
  MOE_RETURN_IF_ERROR(Annotate(lengths.status(), "--lengths " + flags.lengths));
  return lengths;
}

absl::Status RunBatch(const BatchFlags& flags, const SessionFlags& common, std::function<bool()> interrupted) {
  MOE_ASSIGN_OR_RETURN(std::vector<int64_t> lengths, Lengths(flags, common.seed));
  const int64_t longest = std::ranges::max(lengths);
  SessionFlags all = common;
  all.max_in_flight = std::max(common.max_in_flight, flags.count);  // a batch is there as a whole
  MOE_ASSIGN_OR_RETURN(const auto session, Session::Begin(all, "", std::move(interrupted)));
  if (longest + flags.generate > session->model().max_context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("--lengths, --generate: the longest request has ", longest, " + ",
                                                   flags.generate, " tokens, the model's context holds ",
                                                   session->model().max_context_tokens));
  }
  const double average = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
                         static_cast<double>(lengths.size());
  FixedWorkload workload(
      MakeBatchRequests(std::move(lengths), flags.generate, flags.padded, session->model().vocab_size, common.seed),
      flags.count);
  const RunResult result = session->Run(workload, [] { return std::string("batch"); });
  Report report{.workload = "batch", .interrupted = result.interrupted};
  report.facts.emplace_back(
      "Batch", absl::StrCat(flags.count, " requests at once, ", flags.generate, " tokens generated for each"));
  report.facts.emplace_back("Prompts", absl::StrCat(flags.lengths, ": ", ShortNumber(average), " tokens on average, ",
                                                    longest, " the longest", flags.padded ? "; all are as long" : ""));
  AddBatchSection(result.records, report);
  AddCommonSections(result.records, result.seconds, common.slo, report);
  MOE_RETURN_IF_ERROR(session->Finish(report, result.records));
  return CheckAnyCompleted(result.records);
}

}  // namespace

void AddBatchCommand(FlagSet& program, std::vector<TrafficCommand>& commands) {
  const auto flags = std::make_shared<BatchFlags>();
  FlagSet command = program.AddCommand(
      "batch", "A batch of prompts at once, and how many tokens a second it generates: MoE-Lightning's workloads");
  command.Add("--lengths", flags->lengths,
              "Of the prompts: mtbench, synthetic, summarisation (the paper's averages and maxima), or a file "
              "with a number of tokens on each line");
  command.Add("--generate", flags->generate, "Tokens to generate for each prompt").Range(1, 1 << 20);
  command
      .Add("--count", flags->count,
           "Prompts. The router takes as many at once as its --queue-limit and 256 more; with decode's --mode "
           "throughput twice its --max-batch, if that is more")
      .Range(1, 65536);
  command.AddSwitch("--padded", flags->padded, "All prompts are as long as the longest one");
  commands.push_back({command, [flags](const SessionFlags& common, std::function<bool()> interrupted) {
                        return RunBatch(*flags, common, std::move(interrupted));
                      }});
}

}  // namespace moestro::loadtest
