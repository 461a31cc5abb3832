// POST /v1/responses: its items, tools and formats, as a conversation.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "services/router/http/chat_request.h"

namespace moestro::router {

// Errors as ReadChatRequest. UNIMPLEMENTED for what needs stored answers, and for tools that are no functions.
absl::StatusOr<ChatRequest> ReadResponsesRequest(std::string_view body, const ServedModel& model,
                                                 const CancelCheck& check);

}  // namespace moestro::router
