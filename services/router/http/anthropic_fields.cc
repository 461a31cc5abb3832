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

namespace moestro::router {

using nlohmann::json;
using text::JsonFields;

namespace {

using OrderedJson = nlohmann::ordered_json;

// Calls `read(fields of the block, its type)` for each block of a content: a text counts as one block.
template <typename Read>
void ReadBlocks(JsonFields& owner, const std::string& path, const char* key, absl::Status* status, Read read) {
  if (!owner.Has(key)) return;
  const json& content = owner.object()[key];
  if (content.is_string()) {
    const json block = {{"type", "text"}, {"text", content}};
    JsonFields fields(block, "", status);
    return read(fields, "text");
  }
  if (!content.is_array())
    return owner.Fail(key, text::Describe(content) + " is neither a string nor a list of blocks");
  for (size_t i = 0; i < content.size() && status->ok(); ++i) {
    if (!content[i].is_object()) {
      return owner.Fail(key, text::Describe(content[i]) + " is not a block of a content: an object with a type");
    }
    JsonFields fields(content[i], absl::StrCat(path, path.empty() ? "" : ".", key, "[", i, "]."), status);
    const std::string type = fields.StringOr("type", "");
    if (type.empty()) return fields.Fail("type", "missing");
    read(fields, type);
  }
}

void RefuseBlock(JsonFields& block, const std::string& type) {
  block.Unsupported("type", absl::StrCat("blocks of type ", text::Quoted(type), " are not supported here"));
}

// Blocks that can only be texts.
std::string ReadTexts(JsonFields& owner, const std::string& path, const char* key, absl::Status* status) {
  std::string joined;
  ReadBlocks(owner, path, key, status, [&](JsonFields& block, const std::string& type) {
    if (type != "text") return RefuseBlock(block, type);
    if (!joined.empty()) joined += '\n';
    joined += block.StringOr("text", "");
  });
  return joined;
}

// Results of tools are messages of their own in a chat, and come before what the user says.
void ReadUser(JsonFields& message, const std::string& path, absl::Status* status, text::Chat* chat) {
  std::string words;
  bool has_words = false;
  ReadBlocks(message, path, "content", status, [&](JsonFields& block, const std::string& type) {
    if (type == "text") {
      if (has_words) words += '\n';
      words += block.StringOr("text", "");
      has_words = true;
    } else if (type == "tool_result") {
      std::string id = block.StringOr("tool_use_id", "");
      if (id.empty()) return block.Fail("tool_use_id", "missing");
      std::string result = ReadTexts(block, path + ".content", "content", status);
      chat->messages.push_back({.role = "tool", .content = std::move(result), .tool_call_id = std::move(id)});
    } else {
      RefuseBlock(block, type);
    }
  });
  if (has_words) chat->messages.push_back({.role = "user", .content = std::move(words)});
}

void ReadAssistant(JsonFields& message, const std::string& path, absl::Status* status, text::Chat* chat) {
  text::ChatMessage taken{.role = "assistant", .content = ""};
  ReadBlocks(message, path, "content", status, [&](JsonFields& block, const std::string& type) {
    if (type == "text") {
      taken.content += block.StringOr("text", "");
    } else if (type == "thinking") {
      taken.reasoning_content += block.StringOr("thinking", "");
    } else if (type == "tool_use") {
      text::ToolCall call{.id = block.StringOr("id", ""), .name = block.StringOr("name", "")};
      if (call.name.empty()) return block.Fail("name", "missing");
      call.arguments = block.Sub("input").object().dump();
      taken.tool_calls.push_back(std::move(call));
    } else if (type != "redacted_thinking") {
      RefuseBlock(block, type);
    }
  });
  chat->messages.push_back(std::move(taken));
}

void ReadMessages(const json& request, JsonFields& fields, absl::Status* status, text::Chat* chat) {
  if (!fields.Has("messages")) return fields.Fail("messages", "missing");
  const json& messages = request["messages"];
  if (!messages.is_array() || messages.empty())
    return fields.Fail("messages", "must be a list with a message at least");
  for (size_t i = 0; i < messages.size() && status->ok(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    if (!messages[i].is_object()) return fields.Fail("messages", path + " is not an object with role and content");
    JsonFields message(messages[i], path + ".", status);
    if (!message.Has("content")) return message.Fail("content", "missing");
    const std::string role = message.StringOr("role", "");
    if (role == "user") {
      ReadUser(message, path, status, chat);
    } else if (role == "assistant") {
      ReadAssistant(message, path, status, chat);
    } else {
      message.Fail("role", "must be user or assistant");
    }
  }
}

// {"name", "description", "input_schema"} becomes {"type": "function", "function": {"name", "description",
// "parameters"}}, with its keys in the client's order: models read them so.
std::string ReadTools(const json& request, std::string_view body, JsonFields& fields) {
  if (!fields.Has("tools")) return {};
  if (!request["tools"].is_array()) {
    fields.Fail("tools", text::Describe(request["tools"]) + " is not a list");
    return {};
  }
  const std::string_view written = text::RawField(body, "tools");
  const OrderedJson tools = written.empty() ? OrderedJson(request["tools"]) : OrderedJson::parse(written);
  OrderedJson functions = OrderedJson::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const OrderedJson& tool = tools[i];
    const std::string path = absl::StrCat("tools[", i, "]: ");
    if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string()) {
      fields.Fail("tools", path + "a tool needs a name");
      return {};
    }
    if (!tool.contains("input_schema") || !tool["input_schema"].is_object()) {
      fields.Fail("tools", path + "a tool needs an input_schema, an object; tools that Anthropic runs are not here");
      return {};
    }
    OrderedJson function = {{"name", tool["name"]}};
    function["description"] = tool.value("description", OrderedJson(""));
    function["parameters"] = tool["input_schema"];
    if (tool.contains("strict")) function["strict"] = tool["strict"];
    functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return functions.empty() ? "" : functions.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
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
  if (schema.empty()) return format.Fail("schema", "missing");
  input.constraint = {.kind = Constraint::Kind::kJsonSchema, .text = std::string(schema)};
  input.constraint_field = is_older ? "output_format.schema" : "output_config.format.schema";
}

// Anthropic's fields, and those of OpenAI's API that it does not have, such as seed.
GenerateInput ReadSampling(const json& request, std::string_view body, JsonFields& fields) {
  GenerateInput input = ReadGenerateFields(fields, body);
  input.max_tokens = static_cast<uint32_t>(fields.Int("max_tokens", 1, UINT32_MAX));
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

// Templates decide which of the earlier thoughts a model reads. Other edits of the conversation would be made here.
void CheckContextManagement(JsonFields& fields) {
  JsonFields management = fields.Sub("context_management");
  if (!management.Has("edits")) return;
  const json& edits = management.object()["edits"];
  const auto is_harmless = [](const json& edit) {
    return edit.is_object() && edit.contains("type") && edit["type"].is_string() &&
           edit["type"].get_ref<const std::string&>().starts_with("clear_thinking_");
  };
  if (!edits.is_array()) return management.Fail("edits", text::Describe(edits) + " is not a list");
  if (std::ranges::all_of(edits, is_harmless)) return;
  management.Unsupported("edits", "other than clear_thinking are not supported: send what the model is to read");
}

// Anthropic's models think when they are asked to.
bool WantsThinking(JsonFields& fields) {
  JsonFields thinking = fields.Sub("thinking");
  thinking.OneOf("type", {"enabled", "adaptive", "disabled"});
  return thinking.StringOr("type", "disabled") != "disabled";
}

}  // namespace

ToolChoice ReadAnthropicToolChoice(JsonFields& fields) {
  JsonFields written = fields.Sub("tool_choice");
  const std::string type = written.StringOr("type", "auto");
  ToolChoice choice{.none = type == "none",
                    .forced = type == "any" || type == "tool",
                    .several = !written.BoolOr("disable_parallel_tool_use", false)};
  if (!choice.none && !choice.forced && type != "auto") {
    fields.Fail("tool_choice", "its type must be auto, any, tool or none");
  }
  if (type != "tool") return choice;
  choice.names = {written.StringOr("name", "")};
  if (choice.names[0].empty()) fields.Fail("tool_choice", "needs the name of a tool");
  return choice;
}

absl::StatusOr<text::Chat> ReadAnthropicChat(const json& request, std::string_view body) {
  absl::Status status;
  JsonFields fields(request, "", &status);
  RefuseFields(Api::kMessages, fields);
  CheckContextManagement(fields);
  text::Chat chat;
  if (std::string system = ReadTexts(fields, "", "system", &status); !system.empty()) {
    chat.messages.push_back({.role = "system", .content = std::move(system)});
  }
  ReadMessages(request, fields, &status, &chat);
  if (!ReadAnthropicToolChoice(fields).none) chat.tools = ReadTools(request, body, fields);
  // Templates know one name or the other.
  const bool thinks = WantsThinking(fields);
  json flags = {{"enable_thinking", thinks}, {"thinking", thinks}};
  if (const std::string effort = fields.Sub("output_config").StringOr("effort", ""); !effort.empty()) {
    flags["reasoning_effort"] = effort;
  }
  chat.template_flags = flags.dump();
  MOE_RETURN_IF_ERROR(status);
  return chat;
}

absl::StatusOr<MessagesRequest> ReadMessagesRequest(std::string_view body, const ServedModel& model,
                                                    const CancelCheck& check) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  absl::Status status;
  JsonFields fields(parsed, "", &status);
  MessagesRequest request;
  request.chat.model = fields.StringOr("model", "");
  request.chat.stream.stream = fields.BoolOr("stream", false);
  request.thinking = WantsThinking(fields);
  GenerateInput input = ReadSampling(parsed, body, fields);
  const ToolChoice choice = ReadAnthropicToolChoice(fields);
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.chat.model, model));
  MOE_ASSIGN_OR_RETURN(const text::Chat chat, ReadAnthropicChat(parsed, body));
  request.chat.continues = !chat.messages.empty() && chat.messages.back().role == "assistant" &&
                           chat.messages.back().tool_calls.empty() && !chat.messages.back().content.empty();
  MOE_RETURN_IF_ERROR(SetPrompt(chat, choice, std::move(input), /*choices=*/1, model, check, request.chat));
  return request;
}

}  // namespace moestro::router
