// The life cycle of the decode role: listen, attach the weights, create the KV pool, serve, drain.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "services/decode/config.h"

namespace moestro {
class TerminationSignal;
}  // namespace moestro

namespace moestro::decode {

// Runs until `termination`. The status says why it ended early: UNAVAILABLE if this process has lost the device.
// Removes the KV pool's shared memory before it returns.
absl::Status RunDecodeServer(const DecodeConfig& config, TerminationSignal& termination);

}  // namespace moestro::decode
