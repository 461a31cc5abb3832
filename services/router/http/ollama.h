// Ollama's API over the same generations: programs that know no other one list, describe and use the served model.
//
// A stream is a line of JSON for each piece (application/x-ndjson); it is the default. Errors are {"error": "..."}.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleOllamaChat(const HttpApi& api, HttpRequest& request, Response& response);
absl::Status HandleOllamaGenerate(const HttpApi& api, HttpRequest& request, Response& response);

absl::Status HandleOllamaTags(const HttpApi& api, Response& response);
absl::Status HandleOllamaShow(const HttpApi& api, HttpRequest& request, Response& response);
absl::Status HandleOllamaPs(const HttpApi& api, Response& response);
absl::Status HandleOllamaVersion(Response& response);

}  // namespace moestro::router
