// Prefill over gRPC, for one call of a client.
#pragma once

#include "moestro/v1/prefill.grpc.pb.h"
#include "services/router/peers.h"

namespace moestro {

class RpcPrefillPeer final : public PrefillPeer {
 public:
  // Both must outlive this object.
  RpcPrefillPeer(v1::Prefill::Stub& stub, const grpc::ServerContext& call) : stub_(stub), call_(call) {}

  absl::StatusOr<GeneratedToken> Run(const PrefillJob& job, PrefillProgressFn progress) override;
  absl::Status Score(const PrefillJob& job, uint32_t top, PrefillProgressFn progress, ScoresFn scores) override;

 private:
  using OnReply = absl::FunctionRef<absl::Status(const v1::PrefillReply&)>;
  absl::Status Call(const v1::PrefillRequest& request, OnReply on_reply);

  v1::Prefill::Stub& stub_;
  const grpc::ServerContext& call_;
};

}  // namespace moestro
