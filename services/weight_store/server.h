// The life cycle of the weight store: validate, listen, load or adopt, publish, clean up.
#pragma once

#include "absl/status/status.h"
#include "services/weight_store/config.h"

namespace moestro {
class TerminationSignal;
}  // namespace moestro

namespace moestro::store {

// Runs until `termination`. The status says why it ended early. A bad checkpoint ends it before it listens, or when the
// bad tensor is read.
absl::Status RunWeightStoreServer(const StoreConfig& config, TerminationSignal& termination);

}  // namespace moestro::store
