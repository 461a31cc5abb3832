#include "services/router/http/chat_request.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/status.h"
#include "common/text/json/json.h"
#include "services/router/http/api.h"
#include "services/router/output/answer_grammar.h"

namespace moestro::router {
namespace {

// Tokens at the end of a prompt: a marker and the white space behind it have fewer.
constexpr size_t kPromptEnd = 16;

}  // namespace

absl::Status SetPrompt(const text::Chat& chat, const ToolChoice& choice, GenerateInput input, size_t choices,
                       const ServedModel& model, const CancelCheck& check, ChatRequest& request) {
  if (chat.messages.empty()) return absl::InvalidArgumentError("messages: is empty");
  MOE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeChat(chat, model, check));
  const std::span<const int32_t> end = std::span(ids).last(std::min(kPromptEnd, ids.size()));
  request.reasoning_open = PromptOpensReasoning(model.text->Decode(end, /*keep_special_tokens=*/true));
  request.tools = chat.tools;
  request.several_calls = choice.several;
  const OutputFormat& format = model.text->output_format();
  if (choice.forced) {
    MOE_ASSIGN_OR_RETURN(input.constraint, ConstrainToCalls(format, {.tools = chat.tools,
                                                                     .name = choice.name,
                                                                     .several = choice.several,
                                                                     .reasoning_open = request.reasoning_open}));
    input.constraint_field = "tools";
  } else if (input.constraint.kind != Constraint::Kind::kNone) {
    MOE_RETURN_IF_ERROR(CheckConstraint(input, model));  // before it is a part of another
    input.constraint = AfterReasoning(format, request.reasoning_open, input.constraint);
  }
  input.prompt = std::move(ids);
  input.keep_special_tokens = true;  // they mark reasoning and calls
  request.choices = Repeat(std::move(input), choices);
  return absl::OkStatus();
}

absl::StatusOr<ChatRequest> ReadChatRequest(std::string_view body, const ServedModel& model, const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseRequest(body, model));
  absl::Status status;
  text::JsonFields fields(parsed, "", &status);
  ChatRequest request{.model = fields.StringOr("model", ""), .choices = {}, .stream = ReadStreamFields(fields)};
  request.logprobs = fields.BoolOr("logprobs", false);
  GenerateInput input = ReadGenerateFields(fields, body);
  input.top_logprobs = static_cast<uint32_t>(fields.IntOr("top_logprobs", 0, 0, kMostAlternatives));
  if (input.top_logprobs > 0 && !request.logprobs) fields.Fail("top_logprobs", "needs logprobs: true");
  const ToolChoice choice = ReadToolChoice(fields);
  const int64_t n = fields.IntOr("n", 1, 1, kMostChoices);
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.model, model));
  MOE_ASSIGN_OR_RETURN(const text::Chat chat, ReadChat(parsed, body));
  MOE_RETURN_IF_ERROR(SetPrompt(chat, choice, std::move(input), static_cast<size_t>(n), model, check, request));
  return request;
}

std::unique_ptr<OutputParser> NewOutputParser(const ChatRequest& request, const ServedModel& model, uint64_t id_seed) {
  return NewParser(model.text->output_format(), {.reasoning_open = request.reasoning_open,
                                                 .parse_tools = !request.tools.empty(),
                                                 .tools = request.tools,
                                                 .id_seed = id_seed,
                                                 .several_calls = request.several_calls});
}

}  // namespace moestro::router
