// The life cycle of the prefill role: listen, attach the weights, serve, drain.
#pragma once

#include "absl/status/status.h"
#include "services/prefill/config.h"

namespace moestro {
class TerminationSignal;
}  // namespace moestro

namespace moestro::prefill {

// Runs until `termination`; the status says why it ended early.
absl::Status RunPrefillServer(const PrefillConfig& config, TerminationSignal& termination);

}  // namespace moestro::prefill
