// Decode over gRPC, for one call of a client.
#pragma once

#include "moestro/v1/decode.grpc.pb.h"
#include "services/router/peers.h"

namespace moestro {

class RpcDecodePeer final : public DecodePeer {
 public:
  // Both must outlive this object and its sessions.
  RpcDecodePeer(v1::Decode::Stub& stub, const grpc::ServerContext& call) : stub_(stub), call_(call) {}

  std::unique_ptr<DecodeSession> OpenSession() override;

 private:
  v1::Decode::Stub& stub_;
  const grpc::ServerContext& call_;
};

}  // namespace moestro
