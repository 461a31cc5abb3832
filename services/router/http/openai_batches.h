// /v1/batches: files of requests that the router answers by itself. The tenant sees its own only.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"
#include "services/router/http/message.h"
#include "services/router/http/response.h"

namespace moestro::router {

absl::Status HandleCreateBatch(const HttpApi& api, const HttpRequest& request, Response& response);
absl::Status HandleListBatches(const HttpApi& api, const HttpRequest& request, Response& response);
absl::Status HandleBatch(const HttpApi& api, const HttpRequest& request, Response& response);
// POST /v1/batches/{id}/cancel.
absl::Status HandleCancelBatch(const HttpApi& api, const HttpRequest& request, Response& response);

}  // namespace moestro::router
