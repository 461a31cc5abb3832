// Requests of Anthropic's Messages API, from JSON to what the router's logic takes.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/chat_template.h"
#include "services/router/http/chat_request.h"

namespace moestro::router {

struct MessagesRequest {
  ChatRequest chat;
  bool thinking = false;  // the client wants to see it
};

ToolChoice ReadAnthropicToolChoice(text::JsonFields& fields);

// system, messages, tools, tool_choice and thinking of a request. `body`: its text, of which the tools are taken as
// they were written. INVALID_ARGUMENT names the field, UNIMPLEMENTED a kind of content that the model cannot read.
absl::StatusOr<text::Chat> ReadAnthropicChat(const nlohmann::json& request, std::string_view body);

// POST /v1/messages.
absl::StatusOr<MessagesRequest> ReadMessagesRequest(std::string_view body, const ServedModel& model,
                                                    ConstraintCheck& constraints, const CancelCheck& check);

}  // namespace moestro::router
