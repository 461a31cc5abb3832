// Queries a node's roles.
#pragma once

#include <string>

#include "services/cli/client/status/node_view.h"
#include "services/cli/client/status/sources.h"

namespace moestro::cli::status {

// Gets health over the sockets in `run_dir`, the model from the router, the rest from /metrics. A role that does not
// answer a query within `timeout_seconds` is down, or has no metrics.
Look LookAt(const std::string& run_dir, const MetricsAddresses& metrics, double timeout_seconds);

}  // namespace moestro::cli::status
