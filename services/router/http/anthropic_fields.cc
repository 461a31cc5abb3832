#include "services/router/http/anthropic_fields.h"

#include <algorithm>
#include <cstdint>
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
#include "services/router/http/offered_tools.h"
#include "services/router/http/text_parts.h"

namespace moestro::router {

using nlohmann::json;
using text::JsonFields;

namespace {

bool IsText(const JsonFields& owner, const char* key) { return owner.Has(key) && owner.object()[key].is_string(); }

// Calls `read(fields of the block, its type, its index)` for each block of a content that is no text, but those that
// are left out.
template <typename Read>
void ReadBlocks(JsonFields& owner, const char* key, Read read) {
  if (owner.Has(key) && !owner.object()[key].is_array()) {
    return owner.Fail(key, text::Describe(owner.object()[key]) + " is neither a string nor a list of blocks");
  }
  size_t blocks = 0;
  owner.ForEach(key, [&](JsonFields& block) {
    const size_t index = blocks++;
    std::string type = block.StringOr("type", "");
    if (type.empty() && block.Has("text")) type = "text";
    if (type.empty()) return block.Fail("type", "missing");
    if (!IsLeftOut(Api::kMessages, "messages[].content[].type", type)) read(block, type, index);
  });
}

void RefuseBlock(JsonFields& block, const std::string& type) {
  block.Fail("type", absl::StrCat("blocks of type ", text::Quoted(type), " do not belong to this role"));
}

bool HoldsText(const std::string& type) {
  return type == "text" || type == "document" || type == "search_result" || type == "tool_reference";
}

// Of each block its text; of other blocks there are none (RefuseFields).
std::string ReadTexts(JsonFields& owner, const char* key) {
  if (IsText(owner, key)) return owner.StringOr(key, "");
  std::string joined;
  ReadBlocks(owner, key, [&](JsonFields& block, const std::string& /*type*/, size_t /*index*/) {
    if (!joined.empty()) joined += '\n';
    joined += ReadTextBlock(block);
  });
  return joined;
}

// Results of tools are messages of their own in a chat, and come before what the user says.
void ReadUser(JsonFields& message, text::Chat* chat) {
  if (IsText(message, "content")) {
    chat->messages.push_back({.role = "user", .content = message.StringOr("content", "")});
    return;
  }
  std::string words;
  bool has_words = false;
  ReadBlocks(message, "content", [&](JsonFields& block, const std::string& type, size_t /*index*/) {
    if (HoldsText(type)) {
      if (has_words) words += '\n';
      words += ReadTextBlock(block);
      has_words = true;
    } else if (type == "tool_result") {
      std::string id = block.StringOr("tool_use_id", "");
      if (id.empty()) return block.Fail("tool_use_id", "missing");
      chat->messages.push_back({.role = "tool", .content = ReadTexts(block, "content"), .tool_call_id = std::move(id)});
    } else {
      RefuseBlock(block, type);
    }
  });
  if (has_words) chat->messages.push_back({.role = "user", .content = std::move(words)});
}

// `written`: the text of the message in the body. What a call was given stays as it was written, because the model
// reads its keys in that order.
void ReadAssistant(JsonFields& message, std::string_view written, text::Chat* chat) {
  text::ChatMessage taken{.role = "assistant", .content = ""};
  if (IsText(message, "content")) {
    taken.content = message.StringOr("content", "");
    chat->messages.push_back(std::move(taken));
    return;
  }
  const std::vector<std::string_view> blocks = text::RawElements(text::RawField(written, "content"));
  ReadBlocks(message, "content", [&](JsonFields& block, const std::string& type, size_t index) {
    if (HoldsText(type)) {
      taken.content += ReadTextBlock(block);
    } else if (type == "thinking") {
      taken.reasoning_content += block.StringOr("thinking", "");
    } else if (type == "tool_use" || type == "mcp_tool_use") {
      text::ToolCall call{.id = block.StringOr("id", ""), .name = block.StringOr("name", "")};
      if (call.name.empty()) return block.Fail("name", "missing");
      if (!block.Sub("input").object().empty()) call.arguments = text::RawField(blocks[index], "input");
      taken.tool_calls.push_back(std::move(call));
    } else if (type == "mcp_tool_result") {  // the client's server ran it within the turn
      chat->messages.push_back(std::exchange(taken, {.role = "assistant", .content = ""}));
      chat->messages.push_back(
          {.role = "tool", .content = ReadTexts(block, "content"), .tool_call_id = block.StringOr("tool_use_id", "")});
    } else if (type != "redacted_thinking") {
      RefuseBlock(block, type);
    }
  });
  chat->messages.push_back(std::move(taken));
}

void ReadMessages(JsonFields& fields, std::string_view body, text::Chat* chat) {
  if (!fields.Has("messages") || fields.object()["messages"].empty()) {
    return fields.Fail("messages", "must be a list with a message at least");
  }
  const std::vector<std::string_view> written = text::RawElements(text::RawField(body, "messages"));
  auto next = written.begin();
  fields.ForEach("messages", [&](JsonFields& message) {
    const std::string_view message_text = *next++;
    if (!message.Has("content")) return message.Fail("content", "missing");
    const std::string role = message.StringOr("role", "");
    if (role == "user") {
      ReadUser(message, chat);
    } else if (role == "assistant") {
      ReadAssistant(message, message_text, chat);
    } else if (role == "system") {
      chat->messages.push_back({.role = "system", .content = ReadTexts(message, "content")});
    } else {
      message.Fail("role", "must be user, assistant or system");
    }
  });
}

// {"name", "description", "input_schema"}, or the form of OpenAI's API: {"type": "function", "function": {"name",
// "description", "parameters"}}.
std::string ReadTools(const json& request, std::string_view body, JsonFields& fields) {
  const OfferedTools offered(Api::kMessages, request);
  const std::vector<std::string_view> written = text::RawElements(text::RawField(body, "tools"));
  std::string functions;
  size_t tools = 0;
  fields.ForEach("tools", [&](JsonFields& tool) {
    const std::string_view text = written[tools++];
    tool.BoolOr("defer_loading", false);
    if (!offered.Has(tool.object())) return;
    const bool is_openai = tool.Has("function");
    JsonFields function = is_openai ? tool.Sub("function") : tool;
    CheckFunction(function);
    if (!function.Has("input_schema") && tool.StringOr("type", "") != "function") {
      function.Fail("input_schema", "missing");
    }
    absl::StrAppend(&functions, functions.empty() ? "[" : ", ",
                    ToolOf(is_openai ? text::RawField(text, "function") : text));
  });
  return functions.empty() ? "" : functions + "]";
}

// What the answer must be: {"format": {"type": "json_schema", "schema"}}. Before output_config it was output_format.
void ReadOutputFormat(JsonFields& fields, std::string_view body, GenerateInput& input) {
  const bool is_older = fields.Has("output_format");
  JsonFields owner = is_older ? fields : fields.Sub("output_config");
  const char* key = is_older ? "output_format" : "format";
  if (!owner.Has(key)) return;
  JsonFields format = owner.Sub(key);
  format.OneOf("type", {"json_schema"});
  const std::string_view written = text::RawField(is_older ? body : text::RawField(body, "output_config"), key);
  const std::string_view schema = text::RawField(written, "schema");
  CheckSchema(format);
  SetConstraint(owner, key, {.kind = Constraint::Kind::kJsonSchema, .text = std::string(schema)},
                is_older ? "output_format.schema" : "output_config.format.schema", input);
}

// Anthropic's fields, and those of OpenAI's API that it does not have, such as seed.
GenerateInput ReadSampling(const json& request, std::string_view body, JsonFields& fields) {
  GenerateInput input = ReadGenerateFields(fields, body);
  if (!fields.Has("max_tokens")) fields.Fail("max_tokens", "missing");
  ReadOutputFormat(fields, body, input);
  if (!fields.Has("stop_sequences")) return input;
  const json& stops = request["stop_sequences"];
  const auto is_text = [](const json& stop) { return stop.is_string(); };
  if (stops.is_array() && std::ranges::all_of(stops, is_text)) {
    input.stop = stops.get<std::vector<std::string>>();
  } else {
    fields.Fail("stop_sequences", "must be a list of strings");
  }
  return input;
}

// Anthropic's models think when they are asked to.
bool WantsThinking(JsonFields& fields) {
  JsonFields thinking = fields.Sub("thinking");
  thinking.OneOf("type", {"enabled", "adaptive", "disabled"});
  return thinking.StringOr("type", "disabled") != "disabled";
}

// What they thought is left out where the client does not want to read it.
bool ShowsThinking(JsonFields& fields) {
  return fields.Sub("thinking").StringOr("display", "") != "omitted" && WantsThinking(fields);
}

}  // namespace

ToolChoice ReadAnthropicToolChoice(JsonFields& fields) {
  const bool is_word = fields.Has("tool_choice") && fields.object()["tool_choice"].is_string();
  JsonFields written = is_word ? fields : fields.Sub("tool_choice");
  const std::string type = written.StringOr(is_word ? "tool_choice" : "type", "auto");
  ToolChoice choice{.none = type == "none",
                    .forced = type == "any" || type == "tool",
                    .several = !written.BoolOr("disable_parallel_tool_use", false)};
  if (!choice.none && !choice.forced && type != "auto") {
    written.Fail(is_word ? "tool_choice" : "type", "must be auto, any, tool or none");
  }
  if (type != "tool") return choice;
  choice.several = false;  // one is named, and one call is asked for
  choice.names = {written.StringOr("name", "")};
  if (choice.names[0].empty()) written.Fail("name", "missing");
  return choice;
}

absl::StatusOr<text::Chat> ReadAnthropicChat(const json& request, std::string_view body) {
  absl::Status status;
  JsonFields fields(request, "", &status);
  RefuseFields(Api::kMessages, fields);
  fields.Sub("context_management").ForEach("edits", [](JsonFields&) {});  // harmless ones, or refused
  text::Chat chat;
  if (std::string system = ReadTexts(fields, "system"); !system.empty()) {
    chat.messages.push_back({.role = "system", .content = std::move(system)});
  }
  ReadMessages(fields, body, &chat);
  chat.tools = ReadTools(request, body, fields);
  if (ReadAnthropicToolChoice(fields).none) chat.tools.clear();
  const std::string effort = fields.Sub("output_config").StringOr("effort", "");
  chat.template_flags = ReadTemplateFlags(fields, body, effort, WantsThinking(fields));
  MOE_RETURN_IF_ERROR(status);
  return chat;
}

absl::StatusOr<MessagesRequest> ReadMessagesRequest(std::string_view body, const ServedModel& model,
                                                    ConstraintCheck& constraints, const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  absl::Status status;
  JsonFields fields(parsed, "", &status);
  MessagesRequest request;
  request.chat.model = fields.StringOr("model", "");
  request.chat.stream.stream = fields.BoolOr("stream", false);
  request.thinking = ShowsThinking(fields);
  GenerateInput input = ReadSampling(parsed, body, fields);
  const ToolChoice choice = ReadAnthropicToolChoice(fields);
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.chat.model, model));
  MOE_ASSIGN_OR_RETURN(const text::Chat chat, ReadAnthropicChat(parsed, body));
  request.chat.continues = !chat.messages.empty() && chat.messages.back().role == "assistant" &&
                           chat.messages.back().tool_calls.empty() && !chat.messages.back().content.empty();
  MOE_RETURN_IF_ERROR(
      SetPrompt(chat, choice, std::move(input), /*choices=*/1, model, constraints, check, request.chat));
  return request;
}

}  // namespace moestro::router
