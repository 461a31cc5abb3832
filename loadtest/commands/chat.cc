#include "loadtest/workloads/chat.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/report/number.h"
#include "loadtest/commands/command.h"
#include "loadtest/report/chat.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

absl::Status RunChat(ChatOptions options, const SessionFlags& common, std::function<bool()> interrupted) {
  MOE_ASSIGN_OR_RETURN(const auto session, Session::Begin(common, "", std::move(interrupted)));
  if (LongestConversation(options) > session->model().max_context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a conversation grows to ", LongestConversation(options), " tokens, the model's context holds ",
        session->model().max_context_tokens, ": lower --turns, --system-tokens, --message-tokens or --answer-tokens"));
  }
  options.vocab_size = session->model().vocab_size;
  options.seed = common.seed;
  ChatWorkload workload(options);
  const RunResult result = session->Run(workload, [] { return std::string("chat"); });
  Report report{.workload = "chat", .interrupted = result.interrupted};
  report.facts.emplace_back("Conversations",
                            absl::StrCat(options.users, " users at a time, ", options.turns, " turns each: ",
                                         options.system_tokens, " tokens shared by all, then ", options.message_tokens,
                                         " new ones and ", options.answer_tokens, " of the answer per turn"));
  report.facts.emplace_back("Pauses",
                            absl::StrCat(ShortNumber(options.think_seconds), " s before a next message, ",
                                         ShortNumber(options.stagger_seconds), " s between two users' first"));
  AddChatSection(result.records, common.slo, report);
  AddCommonSections(result.records, result.seconds, common.slo, report);
  MOE_RETURN_IF_ERROR(session->Finish(report, result.records));
  return CheckAnyCompleted(result.records);
}

}  // namespace

void AddChatCommand(FlagSet& program, std::vector<TrafficCommand>& commands) {
  const auto options = std::make_shared<ChatOptions>();
  FlagSet command =
      program.AddCommand("chat", "Growing conversations that share a beginning: exercises the prefix cache");
  command.Add("--users", options->users, "Concurrent conversations").Range(1, 512);
  command.Add("--turns", options->turns, "Turns per conversation").Range(1, 10000);
  command.Add("--system-tokens", options->system_tokens, "Tokens of the beginning that all users share")
      .Range(0, 1 << 20);
  command.Add("--message-tokens", options->message_tokens, "New tokens of each turn").Range(1, 1 << 20);
  command.Add("--answer-tokens", options->answer_tokens, "Tokens of each answer").Range(1, 1 << 20);
  command.Add("--think", options->think_seconds, "Seconds between an answer and the next message").NonNegative();
  command.Add("--stagger", options->stagger_seconds, "Seconds between the first messages of two users").NonNegative();
  commands.push_back({command, [options](const SessionFlags& common, std::function<bool()> interrupted) {
                        return RunChat(*options, common, std::move(interrupted));
                      }});
}

}  // namespace moestro::loadtest
