// Converts conversations to prompt text, by the template published with the model.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

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

// How a template reads messages; published ones differ.
struct MessageForm {
  bool arguments_as_text = false;  // the JSON text; otherwise the object, if the text is one
  bool content_is_none = false;    // the empty content of a message with tool calls: none instead of ""
  // Whose content is a list of parts, [{"type": "text", "text": ...}], instead of the text.
  std::vector<std::string> roles_of_parts = {};
};

// A Jinja template. The interpreter supports the part of Jinja that chat templates use, with trim_blocks and
// lstrip_blocks on and no autoescape, and the additions of transformers. Immutable and thread-safe.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT with the line for a syntax error or an unsupported construct.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Parse(std::string_view jinja_source);
  ~ChatTemplate();

  enum class Source {
    kAssistantContent,  // what the assistant wrote in an earlier turn
    kText,              // any other text of the chat
    kJson,              // a key or string in arguments, tools and flags: templates look some of them up
  };
  struct Options {
    bool add_generation_prompt = true;  // end with the start of an assistant turn
    std::string bos_token = {};
    std::string eos_token = {};
    MessageForm form = {};
    // Each text of the chat but roles passes through it, once, before the template sees it. Empty: texts are unchanged.
    std::function<std::string(std::string_view text, Source source)> guard = {};
    // Of the JSON in tools, arguments and flags together.
    int64_t max_json_values = 1 << 20;
    std::function<std::time_t()> clock = {};  // the date that a template may ask for; empty: the system's
  };

  // Renders the prompt. The template writes BOS itself, so encode the result with add_special_tokens off.
  // INVALID_ARGUMENT names a field that is not UTF-8, not JSON or of another form; so does it if the template rejects
  // the messages with raise_exception() (the error ends in its message), or for an error in the template.
  // RESOURCE_EXHAUSTED if rendering exceeds the time, memory or nesting limits of jinja/limits.h.
  absl::StatusOr<std::string> Render(const Chat& chat, const Options& options) const;

  // The form in which the template renders a tool call whole and the words of each role, as far as it renders them at
  // all; otherwise the default form.
  MessageForm FindToolCallForm(Options options) const;
  // Whether the template mentions tools, or tool calls, at all.
  bool takes_tools() const;
  bool takes_tool_calls() const;

 private:
  struct Program;
  // Whether the words of a role come out as a text, or else as a part.
  void FindParts(const std::string& role, const std::function<Chat(const ChatMessage&)>& chat_with,
                 Options* options) const;
  void FindCallForm(Options* options) const;
  explicit ChatTemplate(std::unique_ptr<const Program> program);

  std::unique_ptr<const Program> program_;
};

}  // namespace moestro::text
