// Asks a node's roles.
#pragma once

#include <string>

#include "services/cli/client/status/node_view.h"
#include "services/cli/client/status/sources.h"

namespace moestro::status {

// Health over the sockets in `run_dir`, the model from the router, the rest from /metrics. Whoever does not answer
// within `timeout_seconds` of each question is down, or has no metrics.
Look LookAt(const std::string& run_dir, const MetricsAddresses& metrics, double timeout_seconds);

}  // namespace moestro::status
