// POST /v1/responses: its items, tools and formats, as a conversation.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/chat_template.h"
#include "services/router/http/chat_request.h"

namespace moestro::router {

// instructions, input, tools and reasoning of a request. `body`: its text, of which the tools are taken as they were
// written. `origins`: gets those of custom tools, and of functions in namespaces. INVALID_ARGUMENT names the field,
// UNIMPLEMENTED one that RefuseFields refuses.
absl::StatusOr<text::Chat> ReadResponsesChat(const nlohmann::json& request, std::string_view body,
                                             ToolOrigins& origins);

// Errors as ReadChatRequest.
absl::StatusOr<ChatRequest> ReadResponsesRequest(std::string_view body, const ServedModel& model,
                                                 ConstraintCheck& constraints, const CancelCheck& check);

}  // namespace moestro::router
