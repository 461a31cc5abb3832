#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"

namespace moestro {
namespace {

std::shared_ptr<grpc::Channel> Connect(const std::string& address, std::chrono::milliseconds connect_timeout,
                                       const Keepalive& of_roles, const std::string& authorities) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  // The router retries requests, since it knows what has been emitted; gRPC must never do so.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Despite its name: gRPC lets each attempt to connect take this long. A refused one fails at once.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(connect_timeout.count()));
  const bool is_local = address.starts_with("unix:");
  const Keepalive& keepalive = is_local ? of_roles : kNetworkKeepalive;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(keepalive.interval.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(keepalive.patience.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, is_local ? 1 : 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit: a long prompt is a long silence
  // A proxy of the environment would look for this machine's addresses on its own.
  if (is_local || IsLoopback(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto credentials =
      authorities.empty() || is_local
          ? grpc::InsecureChannelCredentials()
          : grpc::SslCredentials({.pem_root_certs = authorities, .pem_private_key = "", .pem_cert_chain = ""});
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace

std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address, const Keepalive& keepalive) {
  return Connect(address, kRoleConnectTimeout, keepalive, "");
}

std::shared_ptr<grpc::Channel> ConnectServer(const ServerOptions& server, const std::string& authorities) {
  const std::chrono::milliseconds timeout(static_cast<int64_t>(server.connect_seconds * 1000));
  return Connect(server.address, timeout, kRoleKeepalive, authorities);
}

absl::Status FromServer(const grpc::Status& status, const ServerOptions& server, const char* peer) {
  const std::string message = status.error_message();
  // The library's message if there is no connection, as opposed to the router's own messages.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      (message.starts_with("failed to connect") || message.starts_with("DNS resolution"))) {
    return absl::UnavailableError(absl::StrCat("cannot reach ", server.address,
                                               ": is the node up? try deploy/status; a connection may take ",
                                               server.connect_seconds, " s (--connect-timeout)"));
  }
  return FromGrpc(status, peer);
}

}  // namespace moestro
