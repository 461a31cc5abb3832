#include "services/router/http/responses_request.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "common/text/json/raw_field.h"
#include "services/router/http/api.h"
#include "services/router/http/api_fields.h"
#include "services/router/http/chat_fields.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
using text::JsonFields;

// What a model thought: as this server writes it in `content`, or what others tell of it in `summary`.
std::string ReadReasoning(JsonFields& item) {
  std::string told;
  item.ForEach("summary", [&](JsonFields& part) { told += part.StringOr("text", ""); });
  std::string thought = ReadContent(item, "content");
  return thought.empty() ? told : thought;
}

// Items become messages. What the assistant thought, said and called in one turn is one of them.
class Conversation {
 public:
  explicit Conversation(text::Chat& chat) : chat_(chat) {}

  void Add(JsonFields& item, std::string_view written) {
    const std::string type = item.StringOr("type", "message");
    if (type == "reasoning") {
      reasoning_ = ReadReasoning(item);
    } else if (type == "function_call") {
      if (chat_.messages.empty() || chat_.messages.back().role != "assistant" || !reasoning_.empty()) {
        Push({.role = "assistant", .content = ""});
      }
      chat_.messages.back().tool_calls.push_back({.id = item.StringOr("call_id", ""),
                                                  .name = item.StringOr("name", ""),
                                                  .arguments = ReadArguments(item, written)});
    } else if (type == "function_call_output") {
      Push({.role = "tool", .content = ReadContent(item, "output"), .tool_call_id = item.StringOr("call_id", "")});
    } else {
      Push(ReadMessage(item, written));
    }
  }

 private:
  void Push(text::ChatMessage message) {
    std::string reasoning = std::exchange(reasoning_, {});
    if (message.role == "assistant" && message.reasoning_content.empty()) {
      message.reasoning_content = std::move(reasoning);
    }
    chat_.messages.push_back(std::move(message));
  }

  text::Chat& chat_;
  std::string reasoning_;  // that the next message of the assistant had
};

void ReadInput(JsonFields& fields, std::string_view body, text::Chat& chat) {
  if (!fields.Has("input")) return fields.Fail("input", "missing");
  const json& input = fields.object()["input"];
  if (input.is_string()) {
    chat.messages.push_back({.role = "user", .content = input.get<std::string>()});
    return;
  }
  if (!input.is_array()) return fields.Fail("input", text::Describe(input) + " is neither a text nor a list of items");
  Conversation conversation(chat);
  const std::vector<std::string_view> written = text::RawElements(text::RawField(body, "input"));
  auto next = written.begin();
  fields.ForEach("input", [&](JsonFields& item) { conversation.Add(item, *next++); });
}

// {"type": "function", "name": ...} as chat completions have it, {"type": "function", "function": {"name": ...}}.
std::string ReadTools(JsonFields& fields, std::string_view body) {
  fields.ForEach("tools", CheckFunction);
  std::string tools;
  for (const std::string_view tool : text::RawElements(text::RawField(body, "tools"))) {
    std::string function;
    for (const char* key : {"name", "description", "parameters", "strict"}) {
      const std::string_view value = text::RawField(tool, key);
      if (value.empty()) continue;
      absl::StrAppend(&function, function.empty() ? "" : ", ", "\"", key, "\": ", std::string(value));
    }
    absl::StrAppend(&tools, tools.empty() ? "[" : ", ", R"({"type": "function", "function": {)", function, "}}");
  }
  return tools.empty() ? "" : tools + "]";
}

void ReadFormat(JsonFields& fields, std::string_view body, GenerateInput& input) {
  input.constraint = {};
  if (!fields.Has("text")) return;
  JsonFields text = fields.Sub("text");
  JsonFields format = text.Sub("format");
  const std::string type = format.StringOr("type", "text");
  if (type == "json_object") {
    input.constraint = {.kind = Constraint::Kind::kJsonObject};
  } else if (type == "json_schema") {
    CheckSchema(format);
    const std::string_view written = text::RawField(text::RawField(body, "text"), "format");
    input.constraint = {.kind = Constraint::Kind::kJsonSchema, .text = std::string(text::RawField(written, "schema"))};
    input.constraint_field = "text.format.schema";
  } else if (type != "text") {
    format.Fail("type", "must be text, json_object or json_schema");
  }
}

}  // namespace

absl::StatusOr<text::Chat> ReadResponsesChat(const json& request, std::string_view body) {
  absl::Status status;
  JsonFields fields(request, "", &status);
  RefuseFields(Api::kResponses, fields);
  text::Chat chat;
  if (fields.Has("instructions")) {
    chat.messages.push_back({.role = "system", .content = fields.StringOr("instructions", "")});
  }
  ReadInput(fields, body, chat);
  chat.tools = ReadTools(fields, body);
  if (ReadToolChoice(fields).none) chat.tools.clear();
  const std::string effort = fields.Sub("reasoning").StringOr("effort", "");
  if (!effort.empty()) chat.template_flags = json{{"reasoning_effort", effort}}.dump();
  MOE_RETURN_IF_ERROR(status);
  return chat;
}

absl::StatusOr<ChatRequest> ReadResponsesRequest(std::string_view body, const ServedModel& model,
                                                 ConstraintCheck& constraints, const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  absl::Status status;
  JsonFields fields(parsed, "", &status);
  ChatRequest request{.model = fields.StringOr("model", ""), .choices = {}, .stream = ReadStreamFields(fields)};
  GenerateInput input = ReadGenerateFields(fields, body);
  input.max_tokens = static_cast<uint32_t>(fields.IntOr("max_output_tokens", 0, 1, UINT32_MAX));
  ReadFormat(fields, body, input);
  fields.Sub("metadata");
  for (const char* key : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "text",
                          "tool_choice", "tools"}) {
    if (!fields.Has(key)) continue;
    request.echo[key] = OrderedJson::parse(text::RawField(body, key));
  }
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.model, model));
  MOE_ASSIGN_OR_RETURN(const text::Chat chat, ReadResponsesChat(parsed, body));
  const ToolChoice choice = ReadToolChoice(fields);  // without an error: ReadResponsesChat has read it, too
  MOE_RETURN_IF_ERROR(SetPrompt(chat, choice, std::move(input), 1, model, constraints, check, request));
  return request;
}

}  // namespace moestro::router
