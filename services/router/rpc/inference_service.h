// The client API over gRPC: translates and delegates.
#pragma once

#include <memory>

#include "services/router/request_runner.h"
#include "services/router/rpc/peer_channels.h"
#include "services/router/served_model.h"

namespace grpc {
class Service;
}

namespace moestro {

// As health checks and reflection know it.
inline constexpr char kInferenceServiceName[] = "moestro.v1.Inference";

// All must outlive the service.
std::shared_ptr<grpc::Service> MakeInferenceService(RequestRunner& runner, const ModelBoard& board,
                                                    PeerChannels& peers);

}  // namespace moestro
