// Converts conversations to prompt text, by the template published with the model.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/chat.h"
#include "common/text/message_form.h"

namespace moestro::text {

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

  // The form in which the template shows the words of each role and a tool call whole, found by rendering short chats.
  // Where no form shows them, the default one.
  MessageForm FindMessageForm(Options options) const;
  // Whether the template mentions tools, or tool calls, at all.
  bool takes_tools() const;
  bool takes_tool_calls() const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<const Program> program);

  std::unique_ptr<const Program> program_;
};

// Whether a prompt that ends in this text has opened <think> for the answer. The last few tokens are enough.
bool PromptOpensReasoning(std::string_view prompt_end);

}  // namespace moestro::text
