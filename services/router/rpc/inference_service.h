// The client API over gRPC: translates and delegates.
#pragma once

#include <memory>

#include "common/rpc/server.h"
#include "services/router/access/access_control.h"
#include "services/router/request/request_runner.h"
#include "services/router/rpc/peer_channels.h"
#include "services/router/rpc/slow_clients.h"
#include "services/router/text/served_model.h"

namespace grpc {
class Service;
}

namespace moestro::router {

// The name that health checks and reflection use.
inline constexpr char kInferenceServiceName[] = "moestro.v1.InferenceService";

// For a server that clients reach, whatever the model. A message holds a text of a million tokens; the memory holds
// four such messages.
inline constexpr RpcLimits kRequestLimits = {.message_bytes = 16 << 20, .memory_bytes = 64 << 20};

// All must outlive the service.
std::shared_ptr<grpc::Service> MakeInferenceService(MetricsRegistry& registry, RequestRunner& runner,
                                                    const ModelBoard& board, PeerChannels& peers, SlowClients& clients,
                                                    AccessControl& access);

}  // namespace moestro::router
