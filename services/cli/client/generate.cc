#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/request_flags.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct GenerateFlags {
  ServerFlags server;
  TextFlags prompt;
  SamplingFlags sampling;
  TemplateFlags chat_template;
  std::string request_id;
  std::string way;
  bool chat = false;
  bool json = false;
};

absl::Status Generate(const GenerateFlags& flags) {
  v1::GenerateRequest request;
  MOE_RETURN_IF_ERROR(ApplySamplingFlags(flags.sampling, request));
  request.set_request_id(flags.request_id);
  request.set_way(WayOf(flags.way));
  if (flags.chat) {
    MOE_RETURN_IF_ERROR(ApplyTemplateFlags(flags.chat_template, *request.mutable_chat()));
    v1::ChatMessage& message = *request.mutable_chat()->add_messages();
    message.set_role("user");
    MOE_ASSIGN_OR_RETURN(*message.mutable_content(), ReadText(flags.prompt));
  } else if (!flags.prompt.token_ids.empty()) {
    request.mutable_token_ids()->mutable_ids()->Add(flags.prompt.token_ids.begin(), flags.prompt.token_ids.end());
  } else {
    MOE_ASSIGN_OR_RETURN(*request.mutable_prompt(), ReadText(flags.prompt));
  }
  RouterClient client(flags.server);
  Answer answer;
  const absl::Status status = StreamAnswer(client, request, /*print=*/!flags.json, answer);
  if (!flags.json && !answer.text.empty()) PrintText("\n");
  MOE_RETURN_IF_ERROR(status);
  if (flags.json) PrintJson(ToJson(answer), /*indent=*/false);
  std::fprintf(stderr, "%s\n", Summary(answer).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddGenerateCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<GenerateFlags>();
  FlagSet command = program.AddCommand("generate", "Continue a prompt; the text streams to stdout");
  AddServerFlags(command, flags->server);
  AddTextFlags(command, flags->prompt, "--prompt", "--prompt-file");
  AddSamplingFlags(command, flags->sampling);
  Flag chat = command.AddSwitch("--chat", flags->chat, "The prompt is a user's message, in the chat's template");
  chat.Excludes(command.Find("--token-ids"));
  AddTemplateFlags(command, flags->chat_template);
  for (const char* of_chats : {"--tools", "--template-flag"}) command.Find(of_chats).Needs(chat);
  command.Add("--request-id", flags->request_id, "Name of the request in logs and for Abort; default: random");
  AddWayFlag(command, flags->way, {"chunked", "in_place", "streamed"});
  command.AddSwitch("--json", flags->json, "One JSON object at the end, with ids, logprobs, usage and timings");
  commands.push_back({command, [flags] { return Generate(*flags); }});
}

}  // namespace moestro::cli
