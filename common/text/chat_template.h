// Converts conversations to prompt text, by the template published with the model.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moestro::text {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant", ...
  std::string content;  // UTF-8
};

// A Jinja template. The interpreter supports the part of Jinja that chat templates use, with trim_blocks and
// lstrip_blocks on and no autoescape. Immutable and thread-safe.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT with the line for a syntax error or an unsupported construct.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Parse(std::string_view jinja_source);
  ~ChatTemplate();

  struct Options {
    bool add_generation_prompt = true;  // end with the start of an assistant turn
    std::string bos_token;
    std::string eos_token;
    std::map<std::string, bool> flags;  // further variables, such as {"enable_thinking", false}
  };

  // Renders the prompt. The template writes BOS itself, so encode the result with add_special_tokens off.
  // INVALID_ARGUMENT if a text is not UTF-8, if the template rejects the messages with raise_exception() (the error
  // ends in its message), or for an error in the template. RESOURCE_EXHAUSTED if rendering exceeds the time, memory or
  // nesting limits of jinja/limits.h.
  absl::StatusOr<std::string> Render(std::span<const ChatMessage> messages, const Options& options) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<const Program> program);

  std::unique_ptr<const Program> program_;
};

}  // namespace moestro::text
