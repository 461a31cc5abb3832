// The one place where absl::Status meets the wire.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace moestro {

// Same code; the message is cut at 1 KiB.
grpc::Status ToGrpc(const absl::Status& status);

// Same code. `peer` ("prefill", "decode", ...) is put before the message.
absl::Status FromGrpc(const grpc::Status& status, const char* peer);

// True if the peer is gone or restarting, so that the work may be tried again on its successor.
bool IsPeerGone(const absl::Status& status);

}  // namespace moestro
