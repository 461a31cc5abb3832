// One generation as the user sees it: streamed, then summarised.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "moestro/v1/inference.pb.h"
#include "services/cli/client/router_client.h"

namespace moestro::cli {

struct Answer {
  v1::GenerateResponse::Started started;  // empty unless the request was admitted
  std::string text;
  std::vector<v1::Token> tokens;
  v1::GenerateResponse::Finished finished;  // empty unless the call succeeded
};

// Runs the request and fills `answer` with everything received. With `print`, text goes to stdout as it arrives. A
// prefill of more than two seconds shows its progress on stderr if stderr is a terminal.
absl::Status StreamAnswer(RouterClient& client, const v1::GenerateRequest& request, bool print, Answer& answer);

nlohmann::json ToJson(const Answer& answer);

// "900 prompt (88 cached) + 12 tokens (stop), first after 0.310 s, 24.1 tok/s, path chunked (812 new tokens < 2048)"
std::string Summary(const Answer& answer);

}  // namespace moestro::cli
