// Runs the generations of one request, its choices, at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/router/http/api.h"
#include "services/router/http/response.h"
#include "services/router/request/api_types.h"
#include "services/router/request/types.h"

namespace moestro::router {

// What becomes of the choices. One call at a time, by several threads. An error ends all choices.
class Answer {
 public:
  virtual ~Answer() = default;
  // The request waits in the line, or for a role that restarts. Any number of times.
  virtual absl::Status Waiting() = 0;
  virtual absl::Status Started(size_t choice, uint32_t prompt_tokens, const AdmissionNotice& notice) = 0;
  virtual absl::Status Prefill(size_t choice, const PrefillProgress& progress) = 0;
  // `text`: what the tokens so far complete.
  virtual absl::Status Tokens(size_t choice, const std::vector<Token>& tokens, const std::string& text) = 0;
  virtual absl::Status Finished(size_t choice, const RequestSummary& summary) = 0;
};

// The header of an answer that ends sooner than its request asked: with so many tokens there is no room for more. Of
// several choices it tells the shortest that was known when the answer began.
inline constexpr char kMaxTokensHeader[] = "X-Max-Tokens";

// `id`: of the answer. It names the choices in the logs of all roles, and for Abort: "id", "id-1", "id-2" and so on.
// Returns when all have ended: the first error, if there is one. A choice for which no worker is free runs when another
// one has ended.
absl::Status RunChoices(const HttpApi& api, Response& response, const std::string& id,
                        std::vector<GenerateInput> inputs, Answer& answer);

// Ends the choices of that name. False: none of them runs.
bool AbortChoices(const HttpApi& api, const Tenant& tenant, const std::string& id);

}  // namespace moestro::router
