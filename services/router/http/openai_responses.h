// POST /v1/responses: texts, reasoning and calls of functions.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleResponses(const HttpApi& api, HttpRequest& request, Response& response);

// POST /v1/responses/input_tokens: how many tokens the prompt of such a request has.
absl::Status HandleInputTokens(const HttpApi& api, HttpRequest& request, Response& response);

// POST /v1/responses/{id}/cancel: ends the request of that id for its own client, which gets an error. `id`: of an
// answer of any API, "resp_...", "chatcmpl-...", "cmpl-..." or "msg_...". 404 if none of this key's requests has it.
absl::Status HandleCancel(const HttpApi& api, const HttpRequest& request, Response& response);

}  // namespace moestro::router
