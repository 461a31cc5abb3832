// GET /v1/models, /v1/models/{id}, /health and /version: what the server is, and whether it serves.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleModels(const HttpApi& api, Response& response);
absl::Status HandleModel(const HttpApi& api, const HttpRequest& request, Response& response);
absl::Status HandleHealth(const HttpApi& api, Response& response);
absl::Status HandleVersion(Response& response);

}  // namespace moestro::router
