#include "services/router/http/responses_request.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"
#include "services/router/http/api.h"
#include "services/router/http/api_fields.h"
#include "services/router/http/chat_fields.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
using text::JsonFields;

// One item of `input` goes to the end of the conversation.
void AddItem(JsonFields& item, text::Chat& chat) {
  const std::string type = item.StringOr("type", "message");
  if (type == "message") {
    chat.messages.push_back(ReadMessage(item));
  } else if (type == "function_call") {
    // Calls of one turn belong to one message.
    if (chat.messages.empty() || chat.messages.back().role != "assistant")
      chat.messages.push_back({.role = "assistant", .content = ""});
    chat.messages.back().tool_calls.push_back({.id = item.StringOr("call_id", ""),
                                               .name = item.StringOr("name", ""),
                                               .arguments = item.StringOr("arguments", "")});
  } else if (type == "function_call_output") {
    chat.messages.push_back(
        {.role = "tool", .content = ReadContent(item, "output"), .tool_call_id = item.StringOr("call_id", "")});
  } else if (type != "reasoning") {  // the model's earlier reasoning: templates drop it
    item.Unsupported("type", text::Quoted(type) + " is not supported");
  }
}

void ReadInput(JsonFields& fields, absl::Status& status, text::Chat& chat) {
  if (!fields.Has("input")) return fields.Fail("input", "missing");
  const json& input = fields.object()["input"];
  if (input.is_string()) {
    chat.messages.push_back({.role = "user", .content = input.get<std::string>()});
    return;
  }
  if (!input.is_array()) return fields.Fail("input", text::Describe(input) + " is neither a text nor a list of items");
  for (size_t i = 0; i < input.size() && status.ok(); ++i) {
    if (!input[i].is_object()) return fields.Fail("input", text::Describe(input[i]) + " is not an item");
    JsonFields item(input[i], absl::StrCat("input[", i, "]."), &status);
    AddItem(item, chat);
  }
}

// {"type": "function", "name": ...} as chat completions have it, {"type": "function", "function": {"name": ...}}.
std::string ReadTools(JsonFields& fields, std::string_view body) {
  if (!fields.Has("tools")) return {};
  std::string tools;
  for (const std::string_view tool : text::RawElements(text::RawField(body, "tools"))) {
    if (text::RawField(tool, "type") != "\"function\"") {
      fields.Unsupported("tools", "only tools of type function are supported");
      return {};
    }
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
    const std::string_view written = text::RawField(text::RawField(body, "text"), "format");
    input.constraint = {.kind = Constraint::Kind::kJsonSchema, .text = std::string(text::RawField(written, "schema"))};
    input.constraint_field = "text.format.schema";
  } else if (type != "text") {
    text.Fail("format", "type must be text, json_object or json_schema");
  }
}

}  // namespace

absl::StatusOr<ChatRequest> ReadResponsesRequest(std::string_view body, const ServedModel& model,
                                                 const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  absl::Status status;
  JsonFields fields(parsed, "", &status);
  ChatRequest request{.model = fields.StringOr("model", ""), .choices = {}, .stream = ReadStreamFields(fields)};
  RefuseFields(Api::kResponses, fields);
  GenerateInput input = ReadGenerateFields(fields, body);
  input.max_tokens = static_cast<uint32_t>(fields.IntOr("max_output_tokens", 0, 1, UINT32_MAX));
  ReadFormat(fields, body, input);
  text::Chat chat;
  if (fields.Has("instructions")) {
    chat.messages.push_back({.role = "system", .content = fields.StringOr("instructions", "")});
  }
  ReadInput(fields, status, chat);
  const ToolChoice choice = ReadToolChoice(fields);
  if (!choice.none) chat.tools = ReadTools(fields, body);
  for (const char* key : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "text",
                          "tool_choice", "tools"}) {
    if (!fields.Has(key)) continue;
    const std::string_view written = text::RawField(body, key);
    request.echo[key] = written.empty() ? OrderedJson(parsed[key]) : OrderedJson::parse(written);
  }
  const std::string effort = fields.Sub("reasoning").StringOr("effort", "");
  if (!effort.empty()) chat.template_flags = json{{"reasoning_effort", effort}}.dump();
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.model, model));
  MOE_RETURN_IF_ERROR(SetPrompt(chat, choice, std::move(input), 1, model, check, request));
  return request;
}

}  // namespace moestro::router
