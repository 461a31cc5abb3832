// GET / and /page/*: the chat page and its files.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/message.h"
#include "services/router/http/response.h"

namespace moestro::router {

absl::Status HandlePage(const HttpRequest& request, Response& response);

}  // namespace moestro::router
