// POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleMessages(const HttpApi& api, HttpRequest& request, Response& response);
absl::Status HandleCountTokens(const HttpApi& api, HttpRequest& request, Response& response);

}  // namespace moestro::router
