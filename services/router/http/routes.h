// The table of endpoints.
#pragma once

#include "services/router/http/api.h"
#include "services/router/http/endpoints.h"

namespace moestro::router {

// `api` must outlive the endpoints.
Endpoints MakeEndpoints(const HttpApi& api);

}  // namespace moestro::router
