// The header of an answer on the wire.
#pragma once

#include <string>

#include "services/router/http/callers.h"
#include "services/router/http/errors.h"
#include "services/router/http/response.h"

namespace moestro::router {

// What of an answer its connection decides.
struct AnswerFrame {
  std::string request_id;
  bool chunked = false;
  bool keep_alive = false;
};

// Another one for each request of this process, and of those before and beside it. Thread-safe.
std::string NewRequestId();

std::string AnswerHead(const ResponseHead& head, const AnswerFrame& frame, const CallerRules& callers);

// An answer to what could not be read as a request, for a connection that ends with it.
std::string LastAnswer(int status, const std::string& message, const CallerRules& callers);

}  // namespace moestro::router
