#include "services/router/http/responses_request.h"

#include <map>
#include <optional>
#include <set>
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
#include "services/router/http/offered_tools.h"

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

// What a tool wrote: a text, a list of parts, or what the commands of a shell wrote.
std::string ReadOutput(JsonFields& item) {
  if (!item.Has("output") || !item.object()["output"].is_array()) {
    return item.StringOr("output", item.StringOr("status", ""));
  }
  std::string written;
  bool is_of_shell = false;
  item.ForEach("output", [&](JsonFields& part) {
    is_of_shell |= part.Has("stdout") || part.Has("stderr");
    if (is_of_shell) absl::StrAppend(&written, part.StringOr("stdout", ""), part.StringOr("stderr", ""));
  });
  return is_of_shell ? written : ReadContent(item, "output");
}

// What a tool was called with, as arguments of a function. `written`: the text of the item in the body.
std::string ReadCallArguments(JsonFields& item, std::string_view written) {
  for (const char* key : {"action", "operation"}) {
    if (item.Has(key) && !item.Sub(key).object().empty()) return std::string(text::RawField(written, key));
  }
  if (item.Has("input")) return json{{"input", item.StringOr("input", "")}}.dump();
  return ReadArguments(item, written);
}

// Items become messages. What the assistant thought, said and called in one turn is one of them.
class Conversation {
 public:
  Conversation(text::Chat& chat, const ToolOrigins& origins) : chat_(chat) {
    for (const auto& [known, origin] : origins) known_[{origin.space, origin.name}] = known;
  }

  void Add(JsonFields& item, std::string_view written) {
    const std::string type = item.StringOr("type", "message");
    if (IsLeftOut(Api::kResponses, "input[].type", type)) return;
    if (type == "reasoning") {
      reasoning_ = ReadReasoning(item);
    } else if (type.ends_with("_call")) {
      if (chat_.messages.empty() || chat_.messages.back().role != "assistant" || !reasoning_.empty()) {
        Push({.role = "assistant", .content = ""});
      }
      const std::string id = ReadId(item);
      chat_.messages.back().tool_calls.push_back(
          {.id = id, .name = ReadName(item, type), .arguments = ReadCallArguments(item, written)});
      // A tool that a server ran within the turn.
      if (type == "mcp_call") Push({.role = "tool", .content = ReadOutput(item), .tool_call_id = id});
    } else if (type.ends_with("_call_output")) {
      Push({.role = "tool", .content = ReadOutput(item), .tool_call_id = ReadId(item)});
    } else {
      Push(ReadMessage(item, written));
    }
  }

 private:
  // Some kinds of calls have their id only.
  static std::string ReadId(JsonFields& item) { return item.StringOr(item.Has("call_id") ? "call_id" : "id", ""); }

  // By which the model knows the tool; one that has no name goes by its type.
  std::string ReadName(JsonFields& item, const std::string& type) const {
    std::string name = item.StringOr("name", "");
    const std::string space = item.StringOr("namespace", "");
    if (const auto known = known_.find({space, name}); known != known_.end()) return known->second;
    return item.Has("name") ? name : type.substr(0, type.rfind("_call"));
  }

  void Push(text::ChatMessage message) {
    std::string reasoning = std::exchange(reasoning_, {});
    if (message.role == "assistant" && message.reasoning_content.empty()) {
      message.reasoning_content = std::move(reasoning);
    }
    chat_.messages.push_back(std::move(message));
  }

  text::Chat& chat_;
  std::map<std::pair<std::string, std::string>, std::string> known_;  // by namespaces and the own names
  std::string reasoning_;                                             // that the next message of the assistant had
};

void ReadInput(JsonFields& fields, std::string_view body, const ToolOrigins& origins, text::Chat& chat) {
  if (!fields.Has("input")) return fields.Fail("input", "missing");
  const json& input = fields.object()["input"];
  if (input.is_string()) {
    chat.messages.push_back({.role = "user", .content = input.get<std::string>()});
    return;
  }
  if (!input.is_array()) return fields.Fail("input", text::Describe(input) + " is neither a text nor a list of items");
  Conversation conversation(chat, origins);
  const std::vector<std::string_view> written = text::RawElements(text::RawField(body, "input"));
  auto next = written.begin();
  fields.ForEach("input", [&](JsonFields& item) { conversation.Add(item, *next++); });
}

// {"type": "function", "name": ...} as chat completions have it, {"type": "function", "function": {"name": ...}}.
// A custom tool, {"type": "custom", "name", "description", "format"}, which takes a text, is a function of that text.
class ToolReader {
 public:
  ToolReader(const json& request, ToolOrigins& origins) : offered_(Api::kResponses, request), origins_(origins) {}

  // `written`: the list as the client wrote it.
  void Read(JsonFields& owner, std::string_view written, const std::string& space) {
    const std::vector<std::string_view> all = text::RawElements(written);
    size_t i = 0;
    owner.ForEach("tools", [&](JsonFields& tool) {
      const std::string_view text = i < all.size() ? all[i] : std::string_view();
      ++i;
      tool.BoolOr("defer_loading", false);
      if (!offered_.Has(tool.object())) return;
      const bool has_schema = tool.Has("input_schema");  // then it is a function of Anthropic's API
      if (tool.StringOr("type", "") == "custom" && !has_schema) return AddCustom(tool, space);
      // Chat completions have the fields of a function one level deeper.
      if (tool.Has("function")) {
        JsonFields function = tool.Sub("function");
        return Add(function, text::RawField(text, "function"), space);
      }
      if (tool.StringOr("type", "") != "namespace") return Add(tool, text, space);
      if (tool.StringOr("name", "").empty()) return tool.Fail("name", "missing");
      if (!space.empty()) return tool.Fail("type", "a namespace may hold functions only");
      Read(tool, text::RawField(text, "tools"), tool.StringOr("name", ""));
    });
  }

  std::string tools() const { return tools_.empty() ? "" : tools_ + "]"; }

 private:
  void Add(JsonFields& tool, std::string_view text, const std::string& space) {
    CheckFunction(tool);
    Offer(tool.StringOr("name", ""), space, /*is_custom=*/false, MembersOf(text));
  }

  void AddCustom(JsonFields& tool, const std::string& space) {
    constexpr char kParameters[] =
        R"({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})";
    const std::string name = tool.StringOr("name", "");
    if (name.empty()) return tool.Fail("name", "missing");
    std::string description = tool.StringOr("description", "");
    JsonFields format = tool.Sub("format");
    const std::string type = format.StringOr("type", "text");
    if (type != "text" && type != "grammar") format.Fail("type", "must be text or grammar");
    const std::string syntax = format.StringOr("syntax", ""), definition = format.StringOr("definition", "");
    if (type == "grammar") {
      absl::StrAppend(&description, description.empty() ? "" : "\n\n", "The input has this form (", syntax, "):\n",
                      definition);
    }
    Offer(name, space, /*is_custom=*/true,
          absl::StrCat(R"(, "description": )", json(description).dump(), R"(, "parameters": )", kParameters));
  }

  // `members`: of the function, behind its name.
  void Offer(const std::string& own, const std::string& space, bool is_custom, const std::string& members) {
    if (space.empty() && names_.contains(own)) return;  // a search found one that was offered already
    std::string name = own;
    // Models call functions by the names that they were given; only where two are the same the namespace tells them
    // apart.
    if (!space.empty() && names_.contains(name)) name = absl::StrCat(space, space.ends_with("__") ? "" : "__", own);
    names_.insert(name);
    if (!space.empty() || is_custom) origins_[name] = {.space = space, .name = own, .is_custom = is_custom};
    absl::StrAppend(&tools_, tools_.empty() ? "[" : ", ", R"({"type": "function", "function": {"name": )",
                    json(name).dump(), members, "}}");
  }

  const OfferedTools offered_;
  ToolOrigins& origins_;
  std::set<std::string> names_;
  std::string tools_;
};

// Whoever chooses a function of a namespace says its own name.
void NameAsKnown(const ToolOrigins& origins, ToolChoice& choice) {
  std::map<std::string, std::string> known;
  for (const auto& [name, origin] : origins) known.try_emplace(origin.name, name);
  for (std::string& name : choice.names) {
    if (const auto found = known.find(name); found != known.end() && !origins.contains(name)) name = found->second;
  }
}

// Items may bring tools, too: programs add theirs to a conversation that goes on, and searches answer with them.
void ReadLaterTools(JsonFields& fields, std::string_view body, ToolReader& tools) {
  if (!fields.Has("input") || !fields.object()["input"].is_array()) return;
  const std::vector<std::string_view> written = text::RawElements(text::RawField(body, "input"));
  size_t items = 0;
  fields.ForEach("input", [&](JsonFields& item) {
    const std::string_view text = written[items++];
    const std::string type = item.StringOr("type", "");
    if (type != "additional_tools" && type != "tool_search_output") return;
    tools.Read(item, text::RawField(text, "tools"), /*space=*/"");
  });
}

void ReadFormat(JsonFields& fields, std::string_view body, GenerateInput& input) {
  if (!fields.Has("text")) return;
  JsonFields text = fields.Sub("text");
  JsonFields format = text.Sub("format");
  const std::string type = format.StringOr("type", "text");
  if (type == "json_object") {
    SetConstraint(text, "format", {.kind = Constraint::Kind::kJsonObject}, "text.format", input);
  } else if (type == "json_schema") {
    // Chat completions have the schema one level deeper.
    const bool is_of_chats = format.Has("json_schema");
    JsonFields owner = is_of_chats ? format.Sub("json_schema") : format;
    CheckSchema(owner);
    std::string_view written = text::RawField(text::RawField(body, "text"), "format");
    if (is_of_chats) written = text::RawField(written, "json_schema");
    SetConstraint(text, "format",
                  {.kind = Constraint::Kind::kJsonSchema, .text = std::string(text::RawField(written, "schema"))},
                  is_of_chats ? "text.format.json_schema.schema" : "text.format.schema", input);
  } else if (type != "text") {
    format.Fail("type", "must be text, json_object or json_schema");
  }
}

}  // namespace

absl::StatusOr<text::Chat> ReadResponsesChat(const json& request, std::string_view body, ToolOrigins& origins) {
  absl::Status status;
  JsonFields fields(request, "", &status);
  RefuseFields(Api::kResponses, fields);
  text::Chat chat;
  if (fields.Has("instructions")) {
    chat.messages.push_back({.role = "system", .content = fields.StringOr("instructions", "")});
  }
  ToolReader tools(request, origins);
  tools.Read(fields, text::RawField(body, "tools"), /*space=*/"");
  ReadLaterTools(fields, body, tools);
  chat.tools = tools.tools();
  ReadInput(fields, body, origins, chat);
  if (ReadToolChoice(fields).none) chat.tools.clear();
  const std::string effort = fields.Sub("reasoning").StringOr("effort", "");
  chat.template_flags = ReadTemplateFlags(fields, body, effort, std::nullopt);
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
  input.max_tokens = ReadMaxTokens(fields, "max_output_tokens");
  ReadFormat(fields, body, input);
  fields.Sub("metadata");
  for (const char* key : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "text",
                          "tool_choice", "tools"}) {
    if (!fields.Has(key)) continue;
    request.echo[key] = OrderedJson::parse(text::RawField(body, key));
  }
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.model, model));
  MOE_ASSIGN_OR_RETURN(const text::Chat chat, ReadResponsesChat(parsed, body, request.origins));
  ToolChoice choice = ReadToolChoice(fields);  // without an error: ReadResponsesChat has read it, too
  NameAsKnown(request.origins, choice);
  MOE_RETURN_IF_ERROR(SetPrompt(chat, choice, std::move(input), 1, model, constraints, check, request));
  return request;
}

}  // namespace moestro::router
