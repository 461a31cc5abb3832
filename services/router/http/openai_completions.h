// POST /v1/completions: prompts as texts or token ids.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleCompletions(const HttpApi& api, HttpRequest& request, Response& response);

}  // namespace moestro::router
