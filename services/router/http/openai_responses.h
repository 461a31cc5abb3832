// POST /v1/responses: texts, reasoning and calls of functions.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleResponses(const HttpApi& api, HttpRequest& request, Response& response);

}  // namespace moestro::router
