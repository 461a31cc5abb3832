// /v1/files: uploads for batches, and what batches have written. The tenant sees its own only.
#pragma once

#include "absl/status/status.h"
#include "services/router/http/api.h"
#include "services/router/http/message.h"
#include "services/router/http/response.h"

namespace moestro::router {

// Of an upload: its parts are in memory at once.
inline constexpr uint64_t kMaxUploadBytes = uint64_t{128} << 20;

absl::Status HandleUploadFile(const HttpApi& api, const HttpRequest& request, Response& response);
absl::Status HandleListFiles(const HttpApi& api, const HttpRequest& request, Response& response);
// GET /v1/files/{id} and /v1/files/{id}/content.
absl::Status HandleFile(const HttpApi& api, const HttpRequest& request, Response& response);
absl::Status HandleDeleteFile(const HttpApi& api, const HttpRequest& request, Response& response);

// The batches, or NOT_FOUND: the router keeps none, and how it would.
absl::StatusOr<Batches*> BatchesOf(const HttpApi& api);

}  // namespace moestro::router
