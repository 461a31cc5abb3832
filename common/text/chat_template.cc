#include "common/text/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/json_reader.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/parser.h"
#include "common/text/json/quoted.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

using jinja::Value;

// Variables that a flag must not replace.
constexpr std::string_view kOwnVariables[] = {
    "add_generation_prompt", "bos_token", "dict",         "documents", "eos_token", "messages", "namespace",
    "raise_exception",       "range",     "strftime_now", "tools"};

// Puts the name of a field before an error that begins with the name of a field in it.
absl::Status InField(const absl::Status& status, const std::string& field) {
  if (status.ok()) return status;
  return absl::Status(status.code(), Concat(field, ".", std::string(status.message())));
}

// Converts what a client sent into values. Every text of it passes through the guard exactly once, here.
class ValueMaker {
 public:
  explicit ValueMaker(const ChatTemplate::Options& options)
      : options_(options),
        guard_json_([this](std::string_view text) { return Guarded(text, ChatTemplate::Source::kJson); }),
        values_left_(options.max_json_values) {}

  absl::StatusOr<Value> Messages(const std::vector<ChatMessage>& messages) {
    std::vector<Value> list;
    for (const auto& [index, message] : ArrangedMessages(messages, options_.form)) {
      absl::StatusOr<Value> value = Message(message);
      MOE_RETURN_IF_ERROR(InField(value.status(), Concat("chat.messages[", index, "]")));
      list.push_back(*std::move(value));
    }
    return Value::MakeList(std::move(list));
  }

  // None if there are no tools: templates compare with it.
  absl::StatusOr<Value> Tools(const std::string& tools) {
    constexpr std::string_view kField = "chat.tools";
    if (tools.empty()) return Value(Value::None{});
    absl::StatusOr<Value> list = Json(tools);
    MOE_RETURN_IF_ERROR(Annotate(list.status(), std::string(kField)));
    if (list->AsList() == nullptr) {
      return absl::InvalidArgumentError(Concat(kField, ": must be a JSON array of functions, not ", list->TypeName()));
    }
    for (size_t i = 0; i < list->AsList()->items.size(); ++i) {
      if (IsFunction(list->AsList()->items[i])) continue;
      return absl::InvalidArgumentError(
          Concat(kField, "[", i, "]: must be a JSON object {\"type\": \"function\", \"function\": {\"name\": ...}}"));
    }
    return list;
  }

  absl::Status AddFlags(const std::string& flags, jinja::Variables* variables) {
    constexpr std::string_view kField = "chat.template_flags";
    if (flags.empty()) return absl::OkStatus();
    absl::StatusOr<Value> object = Json(flags);
    MOE_RETURN_IF_ERROR(Annotate(object.status(), std::string(kField)));
    if (object->AsDict() == nullptr) {
      return absl::InvalidArgumentError(Concat(kField, ": must be a JSON object, not ", object->TypeName()));
    }
    for (const auto& [name, value] : object->AsDict()->items) {
      const bool is_own =
          std::find(std::begin(kOwnVariables), std::end(kOwnVariables), name) != std::end(kOwnVariables);
      if (is_own) return absl::InvalidArgumentError(Concat(kField, ": ", Quoted(name), " is not a flag"));
      if (!IsName(name)) {
        return absl::InvalidArgumentError(Concat(kField, ": ", Quoted(name), " is not the name of a variable"));
      }
      (*variables)[name] = value;
    }
    return absl::OkStatus();
  }

 private:
  static bool IsName(std::string_view name) {
    const auto is_part = [](char c) { return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)); };
    return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
           std::all_of(name.begin(), name.end(), is_part);
  }

  static const Value* Member(const Value& object, std::string_view key) {
    const jinja::Dict* dict = object.AsDict();
    if (dict == nullptr) return nullptr;
    const auto found =
        std::find_if(dict->items.begin(), dict->items.end(), [&](const auto& member) { return member.first == key; });
    return found == dict->items.end() ? nullptr : &found->second;
  }

  static bool IsFunction(const Value& tool) {
    const Value* type = Member(tool, "type");
    const Value* function = Member(tool, "function");
    const Value* name = function == nullptr ? nullptr : Member(*function, "name");
    return type != nullptr && type->AsString() != nullptr && *type->AsString() == "function" && name != nullptr &&
           name->AsString() != nullptr && !name->AsString()->empty();
  }

  std::string Guarded(std::string_view text, ChatTemplate::Source source) const {
    return options_.guard ? options_.guard(text, source) : std::string(text);
  }

  absl::StatusOr<Value> Text(const std::string& text, const char* field,
                             ChatTemplate::Source source = ChatTemplate::Source::kText) const {
    if (const auto offset = FindInvalidUtf8(text)) {
      return absl::InvalidArgumentError(Concat(field, ": is not valid UTF-8 at byte ", *offset));
    }
    return Value(Guarded(text, source));
  }

  absl::StatusOr<Value> Json(const std::string& text) {
    absl::StatusOr<Value> value = jinja::ReadJson(text, guard_json_, &values_left_);
    if (absl::IsResourceExhausted(value.status())) {
      return absl::InvalidArgumentError(std::string(value.status().message()));
    }
    return value;
  }

  absl::StatusOr<Value> CallArguments(const std::string& arguments) {
    constexpr char kField[] = "arguments";
    const std::string text = arguments.empty() ? "{}" : arguments;
    if (options_.form.arguments_as_text) return Text(text, kField);
    absl::StatusOr<Value> value = jinja::ReadJson(text, guard_json_, &values_left_);
    if (absl::IsResourceExhausted(value.status())) {
      return absl::InvalidArgumentError(Concat(kField, ": ", std::string(value.status().message())));
    }
    // A model may have written something else. The template then gets the text.
    if (!value.ok() || value->AsDict() == nullptr) return Text(text, kField);
    return value;
  }

  absl::StatusOr<Value> Call(const ToolCall& call) {
    MOE_ASSIGN_OR_RETURN(Value name, Text(call.name, "name"));
    MOE_ASSIGN_OR_RETURN(Value arguments, CallArguments(call.arguments));
    MOE_ASSIGN_OR_RETURN(Value function,
                         Value::MakeDict({{"name", std::move(name)}, {"arguments", std::move(arguments)}}));
    std::vector<std::pair<std::string, Value>> members;
    if (!call.id.empty()) {
      MOE_ASSIGN_OR_RETURN(Value id, Text(call.id, "id"));
      members.emplace_back("id", std::move(id));
    }
    members.emplace_back("type", Value("function"));
    members.emplace_back("function", std::move(function));
    return Value::MakeDict(std::move(members));
  }

  absl::StatusOr<Value> Calls(const std::vector<ToolCall>& calls) {
    std::vector<Value> list;
    list.reserve(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      absl::StatusOr<Value> call = Call(calls[i]);
      MOE_RETURN_IF_ERROR(InField(call.status(), Concat("tool_calls[", i, "]")));
      list.push_back(*std::move(call));
    }
    return Value::MakeList(std::move(list));
  }

  absl::StatusOr<Value> Content(const ChatMessage& message) const {
    const bool by_assistant = message.role == "assistant";
    MOE_ASSIGN_OR_RETURN(Value text,
                         Text(message.content, "content",
                              by_assistant ? ChatTemplate::Source::kAssistantContent : ChatTemplate::Source::kText));
    if (std::ranges::count(options_.form.roles_of_parts, message.role) == 0) return text;
    MOE_ASSIGN_OR_RETURN(Value part, Value::MakeDict({{"type", Value("text")}, {"text", std::move(text)}}));
    return Value::MakeList({std::move(part)});
  }

  absl::StatusOr<Value> Message(const ChatMessage& message) {
    std::vector<std::pair<std::string, Value>> members;
    const auto add = [&](const char* field, const char* key, const std::string& text,
                         ChatTemplate::Source source = ChatTemplate::Source::kText) -> absl::Status {
      MOE_ASSIGN_OR_RETURN(Value value, Text(text, field, source));
      members.emplace_back(key, std::move(value));
      return absl::OkStatus();
    };
    const bool reasons = !message.reasoning_content.empty();
    // Under the name that templates of gpt-oss read, and first, as transformers has it.
    if (reasons) MOE_RETURN_IF_ERROR(add("reasoning_content", "thinking", message.reasoning_content));
    if (const auto offset = FindInvalidUtf8(message.role)) {
      return absl::InvalidArgumentError(Concat("role: is not valid UTF-8 at byte ", *offset));
    }
    members.emplace_back("role", message.role);
    if (options_.form.content_is_none && message.content.empty() && !message.tool_calls.empty()) {
      members.emplace_back("content", Value::None{});
    } else {
      MOE_ASSIGN_OR_RETURN(Value content, Content(message));
      members.emplace_back("content", std::move(content));
    }
    if (!message.name.empty()) MOE_RETURN_IF_ERROR(add("name", "name", message.name));
    if (!message.tool_calls.empty()) {
      MOE_ASSIGN_OR_RETURN(Value calls, Calls(message.tool_calls));
      members.emplace_back("tool_calls", std::move(calls));
    }
    if (!message.tool_call_id.empty()) {
      MOE_RETURN_IF_ERROR(add("tool_call_id", "tool_call_id", message.tool_call_id));
    }
    if (reasons) MOE_RETURN_IF_ERROR(add("reasoning_content", "reasoning_content", message.reasoning_content));
    return Value::MakeDict(std::move(members));
  }

  const ChatTemplate::Options& options_;
  const jinja::JsonText guard_json_;
  int64_t values_left_;
};

}  // namespace

struct ChatTemplate::Program {
  jinja::Body body;
  bool takes_tools;
  bool takes_tool_calls;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view jinja_source) {
  MOE_ASSIGN_OR_RETURN(jinja::Body body, jinja::Parse(jinja_source));
  const auto mentions = [&](std::string_view name) { return jinja_source.find(name) != std::string_view::npos; };
  auto program = std::make_unique<const Program>(Program{std::move(body), mentions("tools"), mentions("tool_calls")});
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(program)));
}

absl::StatusOr<std::string> ChatTemplate::Render(const Chat& chat, const Options& options) const {
  jinja::Variables variables;
  ValueMaker values(options);
  MOE_RETURN_IF_ERROR(values.AddFlags(chat.template_flags, &variables));
  MOE_ASSIGN_OR_RETURN(variables["messages"], values.Messages(chat.messages));
  MOE_ASSIGN_OR_RETURN(variables["tools"], values.Tools(chat.tools));
  variables["add_generation_prompt"] = options.add_generation_prompt;
  variables["bos_token"] = options.bos_token;
  variables["eos_token"] = options.eos_token;
  // Templates compare it with none; every template runner defines it.
  variables["documents"] = Value::None{};
  const jinja::Clock clock = options.clock ? options.clock : [] { return std::time(nullptr); };
  return jinja::Evaluator(std::move(variables), clock).Render(program_->body);
}

MessageForm ChatTemplate::FindMessageForm(Options options) const {
  const auto render = [&](const Chat& chat, const MessageForm& form) {
    options.form = form;
    return Render(chat, options);
  };
  return text::FindMessageForm(render, takes_tool_calls());
}

bool ChatTemplate::takes_tools() const { return program_->takes_tools; }
bool ChatTemplate::takes_tool_calls() const { return program_->takes_tool_calls; }

bool PromptOpensReasoning(std::string_view prompt_end) {
  return absl::EndsWith(absl::StripTrailingAsciiWhitespace({prompt_end.data(), prompt_end.size()}), "<think>");
}

}  // namespace moestro::text
