// The conversation of OpenAI's chat completions, from JSON to a chat of the model.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/chat_template.h"
#include "common/text/json/json.h"

namespace moestro::router {

// What a client wants of its tools.
struct ToolChoice {
  bool none = false;                    // the model does not learn of them
  bool forced = false;                  // the answer is a call
  std::vector<std::string> names = {};  // of the functions that may be called; empty: any of them
  bool several = true;                  // more than one call
  bool as_function_call = false;        // the client speaks the form before tools: functions and function_call
};

// One message, and a content: a text, or a list of parts, which hold texts (RefuseFields has seen to the types).
// `written`: the text of the message in the body. `thoughts`: gets what the assistant thought; null: there may be none.
text::ChatMessage ReadMessage(text::JsonFields& message, std::string_view written);
std::string ReadContent(text::JsonFields& message, const char* key, std::string* thoughts = nullptr);
// The arguments of a call in `owner`, whose text is `written`. OpenAI has a text there. Some clients send the object
// itself: it stays as it was written, because a model reads its keys in that order.
std::string ReadArguments(text::JsonFields& owner, std::string_view written);
// name, description, parameters (or input_schema) and strict of a function that a model may call: their types.
void CheckFunction(text::JsonFields& function);
// Of such a function, as it is written: what is behind its name, ", \"description\": ..., \"parameters\": ..."; and all
// of it as a tool of chats, {"type": "function", "function": {...}}. Values stay as they were written, because a model
// reads their keys in that order.
std::string MembersOf(std::string_view function);
std::string ToolOf(std::string_view function);

// Variables of the template: chat_template_kwargs as they were written, and those that other fields stand for unless it
// has them. `effort`: of reasoning; empty: not said. `thinks`: nullopt: not said; an effort of "none" says no.
std::string ReadTemplateFlags(text::JsonFields& fields, std::string_view body, const std::string& effort,
                              std::optional<bool> thinks);

// tool_choice and parallel_tool_calls, as chat completions and responses have them.
ToolChoice ReadToolChoice(text::JsonFields& fields);
// The same of chat completions, which may have function_call and functions instead.
ToolChoice ReadChatToolChoice(text::JsonFields& fields);

// messages, tools or functions, chat_template_kwargs and reasoning_effort of a request. `body`: its text, of which
// objects are taken as they were written, because a model reads them in that order. INVALID_ARGUMENT names the field,
// UNIMPLEMENTED one that RefuseFields refuses.
absl::StatusOr<text::Chat> ReadChat(const nlohmann::json& request, std::string_view body);

}  // namespace moestro::router
