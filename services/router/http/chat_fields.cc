#include "services/router/http/chat_fields.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"

namespace moestro::router {

using nlohmann::json;
using text::JsonFields;

namespace {

// In the form before tools a call and its result have the function's name in common, so it is their id.
std::vector<text::ToolCall> ReadFunctionCall(JsonFields& message) {
  JsonFields call = message.Sub("function_call");
  const std::string name = call.StringOr("name", "");
  if (name.empty()) message.Fail("function_call", "needs the name of a function");
  return {{.id = name, .name = name, .arguments = call.StringOr("arguments", "")}};
}

std::vector<text::ToolCall> ReadToolCalls(JsonFields& message) {
  if (!message.Has("tool_calls")) {
    return message.Has("function_call") ? ReadFunctionCall(message) : std::vector<text::ToolCall>();
  }
  const json& list = message.object()["tool_calls"];
  if (!list.is_array()) {
    message.Fail("tool_calls", text::Describe(list) + " is not a list");
    return {};
  }
  std::vector<text::ToolCall> calls;
  for (const json& item : list) {
    if (!item.is_object() || !item.contains("function") || !item["function"].is_object()) {
      message.Fail("tool_calls", "a call needs the object function with name and arguments");
      return {};
    }
    absl::Status status;
    JsonFields call(item, "tool_calls.", &status);
    JsonFields function = call.Sub("function");
    text::ToolCall taken{.id = call.StringOr("id", ""), .name = function.StringOr("name", "")};
    // OpenAI has a text here. Some clients send the object itself.
    const bool is_object = function.Has("arguments") && function.object()["arguments"].is_object();
    taken.arguments = is_object ? function.object()["arguments"].dump() : function.StringOr("arguments", "");
    if (!status.ok()) {
      message.Fail("tool_calls", std::string(status.message()));
      return {};
    }
    calls.push_back(std::move(taken));
  }
  return calls;
}

// Variables of the template.
std::string ReadFlags(JsonFields& fields) {
  json flags = fields.Sub("chat_template_kwargs").object();
  if (fields.Has("reasoning_effort")) {
    const std::string effort = fields.StringOr("reasoning_effort", "");
    if (!flags.contains("reasoning_effort")) flags["reasoning_effort"] = effort;
    // What templates of models that think or not have for "none".
    if (effort == "none" && !flags.contains("enable_thinking")) flags["enable_thinking"] = false;
  }
  return flags.empty() ? "" : flags.dump();
}

// Chat completions have {"function": {"name"}}, responses the name itself.
std::string NameOf(JsonFields& tool) {
  return tool.Has("function") ? tool.Sub("function").StringOr("name", "") : tool.StringOr("name", "");
}

// Chat completions have {"allowed_tools": {"mode", "tools"}}, responses both of them itself.
void ReadAllowedTools(JsonFields& fields, JsonFields& written, ToolChoice& choice) {
  JsonFields allowed = written.Has("allowed_tools") ? written.Sub("allowed_tools") : written;
  const std::string mode = allowed.StringOr("mode", "auto");
  choice.forced = mode == "required";
  if (!choice.forced && mode != "auto")
    fields.Fail("tool_choice", "the mode of allowed_tools must be auto or required");
  const bool has_tools = allowed.Has("tools") && allowed.object()["tools"].is_array();
  if (!has_tools || allowed.object()["tools"].empty()) {
    return fields.Fail("tool_choice", "allowed_tools needs a list of tools");
  }
  for (const json& item : allowed.object()["tools"]) {
    absl::Status status;
    JsonFields tool(item, "", &status);
    choice.names.push_back(item.is_object() ? NameOf(tool) : "");
    if (!status.ok() || choice.names.back().empty()) {
      return fields.Fail("tool_choice", "a tool of allowed_tools needs the name of a function");
    }
  }
}

bool HasFunctions(const JsonFields& fields) { return fields.Has("functions") || fields.Has("function_call"); }

// The tools that a model may call, as its template reads them.
std::string ReadTools(JsonFields& fields, std::string_view body) {
  if (!fields.Has("tools")) return {};
  const json& tools = fields.object()["tools"];
  if (!tools.is_array()) fields.Fail("tools", text::Describe(tools) + " is not a list");
  if (!tools.is_array() || tools.empty()) return {};
  const std::string_view written = text::RawField(body, "tools");
  return written.empty() ? tools.dump() : std::string(written);
}

std::string ReadFunctions(JsonFields& fields, std::string_view body) {
  if (!fields.Has("functions")) return {};
  const json& functions = fields.object()["functions"];
  const auto is_object = [](const json& function) { return function.is_object(); };
  if (!functions.is_array() || !std::ranges::all_of(functions, is_object)) {
    fields.Fail("functions", text::Describe(functions) + " is not a list of objects with name and parameters");
    return {};
  }
  const std::string dumped = functions.dump();
  const std::string_view written = text::RawField(body, "functions");
  std::string tools;
  for (const std::string_view function : text::RawElements(written.empty() ? dumped : written)) {
    absl::StrAppend(&tools, tools.empty() ? "[" : ", ", R"({"type": "function", "function": )", std::string(function),
                    "}");
  }
  return tools.empty() ? "" : tools + "]";
}

}  // namespace

std::string ReadContent(JsonFields& message, const char* key) {
  if (!message.Has(key)) return {};
  const json& content = message.object()[key];
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    message.Fail(key, text::Describe(content) + " is neither a string nor a list of parts");
    return {};
  }
  std::string joined;
  for (const json& part : content) {
    if (!part.is_object()) {
      message.Fail(key, text::Describe(part) + " is not a part of a content: an object with type and text");
      return {};
    }
    const auto type = part.find("type");
    const std::string name = type != part.end() && type->is_string() ? type->get<std::string>() : "";
    if (name != "text" && name != "input_text" && name != "output_text" && name != "refusal") {
      message.Unsupported(
          key, absl::StrCat("parts of type ", text::Quoted(name), " are not supported: this model reads text only"));
      return {};
    }
    const auto words = part.find(name == "refusal" ? "refusal" : "text");
    if (words == part.end() || !words->is_string()) {
      message.Fail(key, "a part of type text needs a string in the field text");
      return {};
    }
    joined += words->get_ref<const std::string&>();
  }
  return joined;
}

text::ChatMessage ReadMessage(JsonFields& message) {
  std::string role = message.StringOr("role", "");
  if (role.empty()) message.Fail("role", "missing");
  if (message.Has("audio")) message.Unsupported("audio", "this model reads text only: send what was said as content");
  // Other names of OpenAI's API for roles that templates know.
  if (role == "developer") role = "system";
  const bool is_function = role == "function";
  if (is_function) role = "tool";
  text::ChatMessage taken{.role = std::move(role),
                          .content = ReadContent(message, "content"),
                          .tool_calls = ReadToolCalls(message),
                          .tool_call_id = message.StringOr("tool_call_id", ""),
                          .name = message.StringOr("name", "")};
  if (is_function && taken.tool_call_id.empty()) taken.tool_call_id = taken.name;
  taken.reasoning_content = message.StringOr(message.Has("reasoning_content") ? "reasoning_content" : "reasoning", "");
  return taken;
}

ToolChoice ReadToolChoice(JsonFields& fields) {
  ToolChoice choice{.several = fields.BoolOr("parallel_tool_calls", true)};
  if (!fields.Has("tool_choice")) return choice;
  if (!fields.object()["tool_choice"].is_object()) {
    const std::string word = fields.StringOr("tool_choice", "auto");
    choice.none = word == "none";
    choice.forced = word == "required";
    if (!choice.none && !choice.forced && word != "auto") {
      fields.Fail("tool_choice", "must be none, auto, required or {\"type\": \"function\", ...}");
    }
    return choice;
  }
  JsonFields written = fields.Sub("tool_choice");
  written.OneOf("type", {"function", "allowed_tools"});
  if (written.StringOr("type", "") == "allowed_tools") {
    ReadAllowedTools(fields, written, choice);
  } else {
    choice.forced = true;
    choice.names = {NameOf(written)};
    if (choice.names[0].empty()) fields.Fail("tool_choice", "needs the name of a function");
  }
  return choice;
}

ToolChoice ReadChatToolChoice(JsonFields& fields) {
  if (!HasFunctions(fields)) return ReadToolChoice(fields);
  if (fields.Has("tools") || fields.Has("tool_choice")) {
    fields.Fail("functions", "and function_call are the older form of tools and tool_choice: send one of the forms");
  }
  ToolChoice choice{.several = false, .as_function_call = true};
  if (!fields.Has("function_call")) return choice;
  if (!fields.object()["function_call"].is_object()) {
    const std::string word = fields.StringOr("function_call", "auto");
    choice.none = word == "none";
    if (!choice.none && word != "auto") fields.Fail("function_call", "must be none, auto or {\"name\": ...}");
    return choice;
  }
  choice.forced = true;
  choice.names = {fields.Sub("function_call").StringOr("name", "")};
  if (choice.names[0].empty()) fields.Fail("function_call", "needs the name of a function");
  return choice;
}

absl::StatusOr<text::Chat> ReadChat(const json& request, std::string_view body) {
  absl::Status status;
  JsonFields fields(request, "", &status);
  text::Chat chat;
  if (!fields.Has("messages")) return absl::InvalidArgumentError("messages: missing");
  const json& messages = request["messages"];
  if (!messages.is_array())
    return absl::InvalidArgumentError("messages: " + text::Describe(messages) + " is not a list");
  for (size_t i = 0; i < messages.size() && status.ok(); ++i) {
    if (!messages[i].is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", i, "]: ", text::Describe(messages[i]), " is not an object with role and content"));
    }
    JsonFields message(messages[i], absl::StrCat("messages[", i, "]."), &status);
    chat.messages.push_back(ReadMessage(message));
  }
  if (!ReadChatToolChoice(fields).none) {
    chat.tools = HasFunctions(fields) ? ReadFunctions(fields, body) : ReadTools(fields, body);
  }
  chat.template_flags = ReadFlags(fields);
  MOE_RETURN_IF_ERROR(status);
  return chat;
}

}  // namespace moestro::router
