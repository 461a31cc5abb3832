// POST /v1/chat/completions.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleChatCompletions(const HttpApi& api, HttpRequest& request, Response& response);

}  // namespace moestro::router
