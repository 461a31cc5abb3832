// How a chat template reads messages; published ones differ.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/chat.h"

namespace moestro::text {

struct MessageForm {
  // Which messages of the role system the template shows; it drops or refuses the others. kAll, too, for one that reads
  // no such message and does not refuse it.
  enum class Systems { kAll, kLeading, kNone };

  bool arguments_as_text = false;  // the JSON text; otherwise the object, if the text is one
  bool content_is_none = false;    // the empty content of a message with tool calls: none instead of ""
  // Whose content is a list of parts, [{"type": "text", "text": ...}], instead of the text.
  std::vector<std::string> roles_of_parts = {};
  Systems systems = Systems::kAll;
  // Of which the template does not show two messages in a row.
  std::vector<std::string> roles_alone = {};
  bool shows_names = false;  // ChatMessage::name
};

// A message as the template gets it.
struct ArrangedMessage {
  size_t index = 0;  // of the client's message that it is, or begins with
  ChatMessage message;
};

// The messages as a template of this form shows all of them, in their order:
// - system messages that it does not show are the user's;
// - neighbours of one of `roles_alone` are one message, with an empty line between their contents. Messages with other
//   fields that the template may show stay by themselves.
std::vector<ArrangedMessage> ArrangedMessages(const std::vector<ChatMessage>& messages, const MessageForm& form);

// The form in which `render` shows the words of each role and, `with_calls`, a tool call whole. What comes out in no
// form keeps its default.
MessageForm FindMessageForm(
    const std::function<absl::StatusOr<std::string>(const Chat& chat, const MessageForm& form)>& render,
    bool with_calls);

}  // namespace moestro::text
