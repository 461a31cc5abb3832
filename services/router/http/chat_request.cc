#include "services/router/http/chat_request.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "common/base/status.h"
#include "common/text/json/json.h"
#include "services/router/http/api.h"
#include "services/router/output/answer_grammar.h"
#include "services/router/request/request_bounds.h"

namespace moestro::router {
namespace {

// Tokens at the end of a prompt: a marker and the white space behind it have fewer.
constexpr size_t kPromptEnd = 16;

bool OpensReasoning(std::span<const int32_t> prompt, const ServedModel& model) {
  const std::span<const int32_t> end = prompt.last(std::min(kPromptEnd, prompt.size()));
  return text::PromptOpensReasoning(model.text->Decode(end, /*keep_special_tokens=*/true));
}

// The text with which the answer begins; the rest of the chat remains.
absl::StatusOr<std::string> TakeBeginning(text::Chat& chat) {
  text::ChatMessage last = std::move(chat.messages.back());
  chat.messages.pop_back();
  if (last.role != "assistant" || last.content.empty() || !last.tool_calls.empty()) {
    return absl::InvalidArgumentError("messages: the last one must be a text of the assistant, to be continued");
  }
  if (chat.messages.empty()) return absl::InvalidArgumentError("messages: has nothing before the text to be continued");
  return std::move(last.content);
}

absl::StatusOr<std::vector<int32_t>> EncodeBegunChat(text::Chat chat, const ServedModel& model,
                                                     const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const std::string beginning, TakeBeginning(chat));
  MOE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeChat(chat, model, check));
  if (OpensReasoning(ids, model)) {
    return absl::InvalidArgumentError(
        "messages: an answer cannot be continued where the model's template opens its reasoning: turn that off "
        "(chat_template_kwargs), or leave the assistant's last message out");
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> begun,
                       EncodeText(beginning, /*plain=*/true, model, "messages", check));
  ids.insert(ids.end(), begun.begin(), begun.end());
  return ids;
}

// Whether the last message says that the answer goes on with it, in DeepSeek's or Kimi's word.
bool IsBegun(text::JsonFields& fields) {
  bool begun = false;
  fields.ForEach("messages", [&](text::JsonFields& message) {
    begun = message.BoolOr("prefix", false) || message.BoolOr("partial", false);
  });
  return begun;
}

}  // namespace

absl::Status SetPrompt(const text::Chat& chat, const ToolChoice& choice, GenerateInput input, size_t choices,
                       const ServedModel& model, ConstraintCheck& constraints, const CancelCheck& check,
                       ChatRequest& request) {
  if (chat.messages.empty()) return absl::InvalidArgumentError("messages: is empty");
  MOE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                       request.continues ? EncodeBegunChat(chat, model, check) : EncodeChat(chat, model, check));
  request.reasoning_open = !request.continues && OpensReasoning(ids, model);
  request.tools = chat.tools;
  request.several_calls = choice.several;
  request.as_function_call = choice.as_function_call;
  request.lost_tags = !choice.forced && choice.names.empty() && !HasStrictTool(chat.tools);
  const OutputFormat& format = model.text->output_format();
  const bool is_bound = input.constraint.kind != Constraint::Kind::kNone;
  const bool may_call = !chat.tools.empty() && CanLeaveCallsOpen(format);
  if (is_bound && !choice.forced) {  // before it is a part of another
    MOE_RETURN_IF_ERROR(CheckConstraintText(input, model));
    MOE_RETURN_IF_ERROR(Annotate(constraints.Compile(input.constraint), input.constraint_field));
  }
  if (choice.forced || !choice.names.empty() || (may_call && (is_bound || HasStrictTool(chat.tools)))) {
    CallRules rules{.tools = chat.tools,
                    .names = choice.names,
                    .several = choice.several,
                    .reasoning_open = request.reasoning_open};
    if (!choice.forced) {
      if (!CanLeaveCallsOpen(format)) {
        return absl::UnimplementedError(
            "tool_choice: allowed_tools in mode auto needs a mark before calls, which this model's syntax does not "
            "have: "
            "leave the other functions out of tools");
      }
      rules.otherwise = input.constraint;
    }
    MOE_ASSIGN_OR_RETURN(input.constraint, ConstrainToCalls(format, rules, constraints));
    input.constraint_field = "tools";
  } else if (is_bound) {
    input.constraint = AfterReasoning(format, request.reasoning_open, input.constraint);
  }
  input.prompt = std::move(ids);
  input.keep_special_tokens = true;  // they mark reasoning and calls
  request.choices = Repeat(std::move(input), choices);
  return absl::OkStatus();
}

absl::StatusOr<ChatRequest> ReadChatRequest(std::string_view body, const ServedModel& model,
                                            ConstraintCheck& constraints, const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseRequest(body, model));
  absl::Status status;
  text::JsonFields fields(parsed, "", &status);
  ChatRequest request{.model = fields.StringOr("model", ""), .choices = {}, .stream = ReadStreamFields(fields)};
  request.logprobs = fields.BoolOr("logprobs", false);
  request.shows_reasoning = fields.BoolOr("include_reasoning", true);
  request.continues = fields.BoolOr("continue_final_message", false) || IsBegun(fields);
  GenerateInput input = ReadGenerateFields(fields, body);
  input.top_logprobs = static_cast<uint32_t>(fields.IntOr("top_logprobs", 0, 0, kMostAlternatives));
  if (input.top_logprobs > 0 && !request.logprobs) fields.Fail("top_logprobs", "needs logprobs: true");
  const int64_t n = fields.IntOr("n", 1, 1, kMostChoices);
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.model, model));
  MOE_ASSIGN_OR_RETURN(const text::Chat chat, ReadChat(parsed, body));
  const ToolChoice choice = ReadChatToolChoice(fields);  // without an error: ReadChat has read it, too
  MOE_RETURN_IF_ERROR(
      SetPrompt(chat, choice, std::move(input), static_cast<size_t>(n), model, constraints, check, request));
  return request;
}

absl::StatusOr<size_t> CountPrompt(
    const HttpApi& api, HttpRequest& http, const ClientCall& call,
    absl::FunctionRef<absl::StatusOr<text::Chat>(const nlohmann::json&, std::string_view)> read) {
  const auto read_input = [&](const ServedModel& model) -> absl::StatusOr<TokenizeInput> {
    const RequestBody body = std::move(http.body);
    MOE_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseRequest(body.text, model));
    MOE_ASSIGN_OR_RETURN(text::Chat chat, read(parsed, body.text));
    return TokenizeInput{.text = std::move(chat)};
  };
  const absl::StatusOr<RequestRunner::Tokens> tokens =
      api.runner.Tokenize(read_input, call.bytes(), [&] { return call.Check(); });
  const std::optional<OverContext> over = OverContextOf(tokens.status());
  if (over && over->is_exact) return over->tokens;
  MOE_RETURN_IF_ERROR(tokens.status());
  return tokens->ids.size();
}

std::unique_ptr<OutputParser> NewOutputParser(const ChatRequest& request, const ServedModel& model, uint64_t id_seed) {
  return NewParser(model.text->output_format(), {.reasoning_open = request.reasoning_open,
                                                 .parse_tools = !request.tools.empty(),
                                                 .tools = request.tools,
                                                 .id_seed = id_seed,
                                                 .several_calls = request.several_calls,
                                                 .lost_tags = request.lost_tags});
}

}  // namespace moestro::router
