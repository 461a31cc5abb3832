// The only place that maps absl::Status to the wire and back.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace moestro {

// Same code; the message is truncated to 1 KiB.
grpc::Status ToGrpc(const absl::Status& status);

// Same code. Prefixes the message with `peer` ("prefill", "decode", ...).
absl::Status FromGrpc(const grpc::Status& status, const char* peer);

// True if the peer is gone or restarting, so that the work may be retried on its successor.
bool IsPeerGone(const absl::Status& status);

}  // namespace moestro
