// What llama-server's and vLLM's clients ask beside OpenAI's API: POST /tokenize, /detokenize and /apply-template, GET
// /tokenizer_info, /props, /slots and /metrics.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"

namespace moestro::router {

absl::Status HandleTokenize(const HttpApi& api, HttpRequest& request, Response& response);
absl::Status HandleDetokenize(const HttpApi& api, HttpRequest& request, Response& response);
absl::Status HandleApplyTemplate(const HttpApi& api, HttpRequest& request, Response& response);
absl::Status HandleTokenizerInfo(const HttpApi& api, Response& response);
absl::Status HandleProps(const HttpApi& api, Response& response);
absl::Status HandleSlots(const HttpApi& api, Response& response);
absl::Status HandleMetrics(const HttpApi& api, Response& response);

}  // namespace moestro::router
