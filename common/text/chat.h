// A conversation, as a client sends it.
#pragma once

#include <string>
#include <vector>

namespace moestro::text {

// All texts are UTF-8.
struct ToolCall {
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // JSON text; empty: no arguments
};

// A message as OpenAI's API has it. A template sees only the fields that are not empty, and `content`.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content;
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {};
  std::string name = {};
  std::string reasoning_content = {};
};

struct Chat {
  std::vector<ChatMessage> messages = {};
  std::string tools = {};  // JSON text of an array of {"type": "function", "function": {"name": ...}}; empty: none
  std::string template_flags = {};  // JSON text of an object with further variables of the template; empty: none
};

}  // namespace moestro::text
