// The gRPC side of peers.h: one channel to each role, shared by all requests. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "services/router/admission/roles.h"
#include "services/router/request/peers.h"

namespace grpc {
class ServerContext;
}

namespace moestro {

class PeerChannels {
 public:
  PeerChannels(const std::string& prefill_address, const std::string& decode_address);
  ~PeerChannels();

  // Peers for one call of a client, which must outlive them: its deadline and its cancellation go on to their calls.
  std::unique_ptr<PrefillPeer> Prefill(const grpc::ServerContext& call);
  std::unique_ptr<DecodePeer> Decode(const grpc::ServerContext& call);

  // True if the role's health service says SERVING. Takes a second at most.
  bool Ping(Role role);

  // Ends the calls to the role that are under way: they fail as if it were gone.
  void CutOff(Role role);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
