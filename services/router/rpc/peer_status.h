// How a failed call to a role is told to the logic.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "common/rpc/status.h"

namespace moestro {

// UNAVAILABLE whenever the role is gone, whatever code the transport made of it; otherwise the role's own code.
inline absl::Status PeerStatus(const grpc::Status& status, const char* peer) {
  const absl::Status result = FromGrpc(status, peer);
  return IsPeerGone(result) ? absl::UnavailableError(result.message()) : result;
}

// The call ended well but without what it owed: its process is on its way down.
inline absl::Status EndedEarly(const char* peer) {
  return absl::UnavailableError(std::string(peer) + ": the call ended before its result");
}

}  // namespace moestro
