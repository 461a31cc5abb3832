// POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

// Both answer errors themselves, in Anthropic's form.
absl::Status HandleMessages(const HttpApi& api, HttpRequest& request, Response& response);
absl::Status HandleCountTokens(const HttpApi& api, HttpRequest& request, Response& response);

// Answers with the error, if there is one and the answer has not begun. The status goes on, for the log.
absl::Status SendAnthropicError(const absl::Status& status, Response& response);

}  // namespace moestro::router
