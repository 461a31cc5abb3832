// The life cycle of the router: listen, learn the model, serve, drain.
#pragma once

#include "absl/status/status.h"
#include "services/router/config.h"

namespace moestro {
class TerminationSignal;
}  // namespace moestro

namespace moestro::router {

// Runs until `termination`; the status says why it ended early.
absl::Status RunRouterServer(const RouterConfig& config, TerminationSignal& termination);

}  // namespace moestro::router
