// /v1/messages/batches: Anthropic's Message Batches. The tenant sees its own only. All answer errors themselves, in
// Anthropic's form.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"
#include "services/router/http/message.h"
#include "services/router/http/response.h"

namespace moestro::router {

absl::Status HandleCreateMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response);
absl::Status HandleListMessageBatches(const HttpApi& api, const HttpRequest& request, Response& response);
// GET /v1/messages/batches/{id} and /v1/messages/batches/{id}/results.
absl::Status HandleMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response);
// POST /v1/messages/batches/{id}/cancel.
absl::Status HandleCancelMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response);
// With its files.
absl::Status HandleDeleteMessageBatch(const HttpApi& api, const HttpRequest& request, Response& response);

}  // namespace moestro::router
