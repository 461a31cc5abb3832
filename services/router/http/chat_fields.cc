#include "services/router/http/chat_fields.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "common/text/json/quoted.h"
#include "common/text/json/raw_field.h"
#include "services/router/http/api_fields.h"
#include "services/router/http/offered_tools.h"
#include "services/router/http/text_parts.h"

namespace moestro::router {

using nlohmann::json;
using text::JsonFields;

namespace {

std::string ReadName(JsonFields& owner) {
  std::string name = owner.StringOr("name", "");
  if (name.empty()) owner.Fail("name", "missing");
  return name;
}

std::vector<text::ToolCall> ReadToolCalls(JsonFields& message, std::string_view written) {
  std::vector<text::ToolCall> calls;
  const auto add = [&calls](std::string id, JsonFields& function, std::string_view text) {
    text::ToolCall& call = calls.emplace_back();
    call.id = std::move(id);
    call.name = function.StringOr("name", "");  // a model may have left it empty
    call.arguments = ReadArguments(function, text);
  };
  if (!message.Has("tool_calls") && message.Has("function_call")) {  // the form before tools: it has no ids
    JsonFields function = message.Sub("function_call");
    add("", function, text::RawField(written, "function_call"));
  }
  if (!message.Has("tool_calls")) return calls;
  const std::vector<std::string_view> texts = text::RawElements(text::RawField(written, "tool_calls"));
  message.ForEach("tool_calls", [&](JsonFields& call) {
    if (call.StringOr("type", "") == "custom") {  // its argument is a text
      JsonFields custom = call.Sub("custom");
      calls.push_back({.id = call.StringOr("id", ""),
                       .name = custom.StringOr("name", ""),
                       .arguments = json{{"input", custom.StringOr("input", "")}}.dump()});
      return;
    }
    JsonFields function = call.Sub("function");
    add(call.StringOr("id", ""), function, text::RawField(texts[calls.size()], "function"));
  });
  return calls;
}

// Calls without ids get them, and results without ids those of the first calls that have no result yet: of their name,
// or of any where they have no name. Kimi's template writes ids where others write names, so they have the form that
// Kimi's models know.
void NameCalls(std::vector<text::ChatMessage>& messages) {
  size_t calls = 0;
  std::vector<std::pair<std::string, std::string>> open;  // names and ids, in the order of the calls
  std::map<std::string, std::string> last;                // ids by name
  for (text::ChatMessage& message : messages) {
    for (text::ToolCall& call : message.tool_calls) {
      if (call.id.empty()) call.id = absl::StrCat("functions.", call.name, ":", calls);
      open.emplace_back(call.name, call.id);
      last[call.name] = call.id;
      ++calls;
    }
    if (message.role != "tool") continue;
    const auto found = std::ranges::find_if(open, [&](const auto& call) {
      if (!message.tool_call_id.empty()) return call.second == message.tool_call_id;
      return message.name.empty() || call.first == message.name;
    });
    if (found != open.end()) {
      message.tool_call_id = found->second;
      open.erase(found);
    } else if (message.tool_call_id.empty() && last.contains(message.name)) {
      message.tool_call_id = last[message.name];
    }
  }
}

// Parts in which SDKs of other APIs hand back what the assistant thought.
bool IsThought(const std::string& type) {
  return type == "thinking" || type == "redacted_thinking" || type == "reasoning";
}

// A text, or parts that hold texts, by any of the names that the SDKs have for it; thoughts that are redacted have
// none.
std::string ReadThought(JsonFields& part) {
  for (const char* key : {"thinking", "reasoning", "text", "summary"}) {
    if (part.Has(key)) return ReadContent(part, key);
  }
  return {};
}

// Whether the model is to think, by the fields of those who make such models; nullopt: not said.
std::optional<bool> ReadThinking(JsonFields& fields) {
  if (fields.Has("enable_thinking")) return fields.BoolOr("enable_thinking", true);
  if (!fields.Has("thinking") || !fields.object()["thinking"].is_object()) return std::nullopt;
  return fields.Sub("thinking").StringOr("type", "enabled") != "disabled";
}

// Chat completions have {"function": {"name"}}, responses the name itself.
std::string ReadFunctionName(JsonFields& tool) {
  JsonFields owner = tool.Has("function") ? tool.Sub("function") : tool;
  return ReadName(owner);
}

// Chat completions have {"allowed_tools": {"mode", "tools"}}, responses both of them itself.
void ReadAllowedTools(JsonFields& written, ToolChoice& choice) {
  JsonFields allowed = written.Has("allowed_tools") ? written.Sub("allowed_tools") : written;
  const std::string mode = allowed.StringOr("mode", "auto");
  choice.forced = mode == "required";
  if (!choice.forced && mode != "auto") allowed.Fail("mode", "must be auto or required");
  bool has_others = false;  // which are left out of the tools, too
  allowed.ForEach("tools", [&](JsonFields& tool) {
    const std::string type = tool.StringOr("type", "");
    const bool is_offered = type.empty() || type == "function" || (type == "custom" && tool.Has("name"));
    has_others |= !is_offered;
    if (is_offered) choice.names.push_back(ReadFunctionName(tool));
  });
  if (!choice.names.empty()) return;
  choice.none = has_others && !choice.forced;
  if (!choice.none) allowed.Fail("tools", "must be a list with a function at least");
}

bool HasFunctions(const JsonFields& fields) { return fields.Has("functions") || fields.Has("function_call"); }

// As responses have a function: its fields beside the type.
bool IsFlat(const json& tool) { return !tool.contains("function") && tool.contains("name"); }

// The tools that a model may call, as its template reads them.
std::string ReadTools(JsonFields& fields, std::string_view body) {
  const OfferedTools offered(Api::kChat, fields.object());
  fields.ForEach("tools", [&](JsonFields& tool) {
    if (!offered.Has(tool.object())) return;
    JsonFields function = IsFlat(tool.object()) ? tool : tool.Sub("function");
    CheckFunction(function);
  });
  if (!fields.ok() || !fields.Has("tools")) return {};
  const json& tools = fields.object()["tools"];
  const std::vector<std::string_view> all = text::RawElements(text::RawField(body, "tools"));
  std::string kept;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!offered.Has(tools[i])) continue;
    const bool is_flat = IsFlat(tools[i]);
    std::string tool(all[i]);
    if ((is_flat ? tools[i] : tools[i]["function"]).contains("input_schema")) {
      tool = ToolOf(is_flat ? all[i] : text::RawField(all[i], "function"));
    } else if (is_flat) {
      tool = absl::StrCat(R"({"type": "function", "function": )", tool, "}");
    }
    absl::StrAppend(&kept, kept.empty() ? "[" : ", ", tool);
  }
  return kept.empty() ? "" : kept + "]";
}

std::string ReadFunctions(JsonFields& fields, std::string_view body) {
  fields.ForEach("functions", CheckFunction);
  if (!fields.ok() || !fields.Has("functions")) return {};
  std::string tools;
  for (const std::string_view function : text::RawElements(text::RawField(body, "functions"))) {
    absl::StrAppend(&tools, tools.empty() ? "[" : ", ", R"({"type": "function", "function": )", std::string(function),
                    "}");
  }
  return tools.empty() ? "" : tools + "]";
}

}  // namespace

std::string ReadTemplateFlags(JsonFields& fields, std::string_view body, const std::string& effort,
                              std::optional<bool> thinks) {
  const json& given = fields.Sub("chat_template_kwargs").object();
  std::string flags(given.empty() ? "" : text::RawField(body, "chat_template_kwargs"));
  const auto add = [&](const char* name, const json& value) {
    if (given.contains(name)) return;
    const std::string member = json{{name, value}}.dump();
    flags = flags.empty() ? member : absl::StrCat(flags.substr(0, flags.size() - 1), ", ", member.substr(1));
  };
  if (!effort.empty()) add("reasoning_effort", effort);
  if (!thinks && effort == "none") thinks = false;
  if (!thinks) return flags;
  for (const char* name : {"enable_thinking", "thinking"}) add(name, *thinks);  // templates know one or the other
  return flags;
}

std::string ReadContent(JsonFields& message, const char* key, std::string* thoughts) {
  if (!message.Has(key)) return {};
  const json& content = message.object()[key];
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    message.Fail(key, text::Describe(content) + " is neither a string nor a list of parts");
    return {};
  }
  std::string joined;
  message.ForEach(key, [&](JsonFields& part) {
    const std::string type = part.StringOr("type", "text");
    if (IsThought(type)) {
      if (thoughts == nullptr) return part.Fail("type", text::Quoted(type) + " belongs to the assistant's messages");
      *thoughts += ReadThought(part);
      return;
    }
    if (type == "input_file") {
      joined += ReadFile(part);
      return;
    }
    if (type == "file") {
      JsonFields file = part.Sub("file");
      joined += ReadFile(file);
      return;
    }
    const char* words = type == "refusal" ? "refusal" : "text";
    if (!part.Has(words)) part.Fail(words, "missing");
    joined += part.StringOr(words, "");
  });
  return joined;
}

std::string ReadArguments(JsonFields& owner, std::string_view written) {
  constexpr char kKey[] = "arguments";
  if (owner.Has(kKey) && owner.object()[kKey].is_object()) return std::string(text::RawField(written, kKey));
  return owner.StringOr(kKey, "");
}

void CheckFunction(JsonFields& function) {
  ReadName(function);
  function.StringOr("description", "");
  for (const char* schema : {"parameters", "input_schema"}) function.Sub(schema);
  function.BoolOr("strict", false);
}

std::string MembersOf(std::string_view function) {
  const auto field = [&](const char* key) { return text::RawField(function, key); };
  const char* const schema = field("input_schema").empty() ? "parameters" : "input_schema";
  std::string members;
  for (const auto& [key, written] :
       {std::pair("description", "description"), {"parameters", schema}, {"strict", "strict"}}) {
    if (!field(written).empty()) absl::StrAppend(&members, ", \"", key, "\": ", std::string(field(written)));
  }
  return members;
}

std::string ToolOf(std::string_view function) {
  const bool is_described = !text::RawField(function, "description").empty();
  return absl::StrCat(R"({"type": "function", "function": {"name": )", std::string(text::RawField(function, "name")),
                      is_described ? "" : R"(, "description": "")", MembersOf(function), "}}");
}

text::ChatMessage ReadMessage(JsonFields& message, std::string_view written) {
  std::string role = message.StringOr("role", "");
  if (role.empty()) message.Fail("role", "missing");
  // Other names of OpenAI's API for roles that templates know.
  if (role == "developer") role = "system";
  if (role == "function") role = "tool";
  std::string thoughts;
  std::string content = ReadContent(message, "content", role == "assistant" ? &thoughts : nullptr);
  if (thoughts.empty()) ReadContent(message, "thinking_blocks", &thoughts);  // litellm's name for such parts
  text::ChatMessage taken{.role = std::move(role),
                          .content = std::move(content),
                          .tool_calls = ReadToolCalls(message, written),
                          .tool_call_id = message.StringOr("tool_call_id", ""),
                          .name = message.StringOr("name", "")};
  taken.content += message.StringOr("refusal", "");  // what it said instead
  taken.reasoning_content = message.StringOr(message.Has("reasoning_content") ? "reasoning_content" : "reasoning", "");
  if (taken.reasoning_content.empty()) taken.reasoning_content = std::move(thoughts);
  return taken;
}

ToolChoice ReadToolChoice(JsonFields& fields) {
  ToolChoice choice{.several = fields.BoolOr("parallel_tool_calls", true)};
  if (!fields.Has("tool_choice")) return choice;
  const bool is_object = fields.object()["tool_choice"].is_object();
  JsonFields written = is_object ? fields.Sub("tool_choice") : fields;
  const std::string word = written.StringOr(is_object ? "type" : "tool_choice", "");
  if (is_object && word == "allowed_tools") {
    ReadAllowedTools(written, choice);
    return choice;
  }
  const bool has_name = written.Has("function") || written.Has("name");
  const bool is_tool = word == "function" || word == "tool" || word == "custom";  // that of the last is in responses
  if (is_object && (is_tool || (word.empty() && has_name))) {
    choice.forced = true;
    choice.names = {ReadFunctionName(written)};
    choice.several = false;  // one is named, and one call is asked for
    return choice;
  }
  // The words of OpenAI's API, and of others for the same.
  choice.none = word == "none";
  choice.forced = word == "required" || word == "any";
  if (!choice.none && !choice.forced && !word.empty() && word != "auto") {
    fields.Fail("tool_choice", "must be none, auto, required or {\"type\": \"function\", ...}");
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
  JsonFields written = fields.Sub("function_call");
  choice.forced = true;
  choice.names = {ReadName(written)};
  return choice;
}

absl::StatusOr<text::Chat> ReadChat(const json& request, std::string_view body) {
  absl::Status status;
  JsonFields fields(request, "", &status);
  RefuseFields(Api::kChat, fields);
  // vLLM's clients send it beside continue_final_message.
  if (!fields.BoolOr("add_generation_prompt", true) && !fields.BoolOr("continue_final_message", false)) {
    fields.Unsupported(
        "add_generation_prompt",
        "false is supported with continue_final_message: true only, which goes on with the last message");
  }
  text::Chat chat;
  if (!fields.Has("messages")) fields.Fail("messages", "missing");
  const std::vector<std::string_view> written = text::RawElements(text::RawField(body, "messages"));
  fields.ForEach("messages", [&](JsonFields& message) {
    chat.messages.push_back(ReadMessage(message, written[chat.messages.size()]));
  });
  NameCalls(chat.messages);
  chat.tools = HasFunctions(fields) ? ReadFunctions(fields, body) : ReadTools(fields, body);
  if (ReadChatToolChoice(fields).none) chat.tools.clear();
  chat.template_flags = ReadTemplateFlags(fields, body, fields.StringOr("reasoning_effort", ""), ReadThinking(fields));
  MOE_RETURN_IF_ERROR(status);
  return chat;
}

}  // namespace moestro::router
