// What a handler asks its caller's context.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>

#include "absl/status/status.h"

namespace moestro {

// OK while the caller still waits; else CANCELLED or DEADLINE_EXCEEDED. Cheap enough to be asked between two layers.
inline absl::Status CallStatus(const grpc::ServerContext& context) {
  if (std::chrono::system_clock::now() >= context.deadline()) {
    return absl::DeadlineExceededError("the request's deadline has passed");
  }
  if (context.IsCancelled()) return absl::CancelledError("the caller went away");
  return absl::OkStatus();
}

}  // namespace moestro
