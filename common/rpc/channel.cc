#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

namespace moestro {

std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address, const std::string& authorities) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  // The router retries requests, since it knows what has been emitted; gRPC must never do so.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  const bool is_role = address.starts_with("unix:");
  // Despite its name: gRPC lets each attempt to connect take this long. A refused one fails at once.
  const auto connect_timeout = is_role ? kRoleConnectTimeout : kNetworkConnectTimeout;
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(connect_timeout.count()));
  const Keepalive& keepalive = is_role ? kRoleKeepalive : kNetworkKeepalive;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(keepalive.interval.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(keepalive.patience.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, is_role ? 1 : 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit: a long prompt is a long silence
  const auto credentials =
      authorities.empty()
          ? grpc::InsecureChannelCredentials()
          : grpc::SslCredentials({.pem_root_certs = authorities, .pem_private_key = "", .pem_cert_chain = ""});
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace moestro
