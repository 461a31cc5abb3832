#include "common/rpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <climits>
#include <string_view>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/process/process.h"
#include "common/process/socket_lock.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/health_rpc.h"
#include "common/rpc/reflection_rpc.h"
#include "common/rpc/tcp_listener.h"

namespace moestro {

struct RpcServer::Impl {
  explicit Impl(const std::vector<std::string>& names) : health(names), reflection(names) {}

  HealthRpc health;  // this and the next must outlive the server
  ReflectionRpc reflection;
  std::vector<std::unique_ptr<SocketLock>> locks;  // these too: the server's end removes its socket
  std::unique_ptr<grpc::Server> server;
  std::vector<int> ports;
  Mutex mutex;
  std::vector<std::unique_ptr<TcpListener>> listeners ABSL_GUARDED_BY(mutex);  // they end before the server
};

namespace {

constexpr std::string_view kUnix = "unix:";

// Limits the resources of clients over TCP, which may be hostile.
void BoundClients(grpc::ServerBuilder& builder, const RpcLimits& limits) {
  constexpr int kSecond = 1000;
  constexpr int kDay = 24 * 3600 * kSecond;
  // Closes a silent connection: soon if it has not begun, later if idle. A ping detects a client that is gone.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20 * kSecond);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300 * kSecond);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kDay);  // its calls may continue
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, INT_MAX);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20 * kSecond);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10 * kSecond);
  // Limits per connection; each stream costs some KB, and with synchronous services a thread.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1024);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);  // per frame
  grpc::ResourceQuota quota("clients");
  quota.Resize(limits.memory_bytes);
  if (limits.threads > 0) quota.SetMaxThreads(limits.threads);
  builder.SetResourceQuota(quota);
}

// How soon a new certificate is used.
constexpr unsigned int kTlsRefreshSeconds = 2;

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const access::TlsFiles& tls) {
  if (!tls.enabled()) return grpc::InsecureServerCredentials();
  using grpc::experimental::FileWatcherCertificateProvider;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(tls.key, tls.certificate, tls.client_ca, kTlsRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (!tls.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

// What a client that only looks sends, so that the server answers. HTTP/2 begins with the server's settings. TLS begins
// with the client, and a server answers what is no TLS with an alert, or closes.
std::string FirstBytes(const access::TlsFiles& tls) { return tls.enabled() ? std::string(8, '\0') : std::string(); }

}  // namespace

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RpcServer::~RpcServer() { Drain(std::chrono::milliseconds(0)); }

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::vector<std::string>& addresses,
                                                            const std::vector<NamedService>& services,
                                                            const RpcLimits& limits, const RpcExposure& exposure) {
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  MOE_RETURN_IF_ERROR(RaiseDescriptorLimit());
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(limits.message_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  // Refuses a port in use: two servers on one port would each get some of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Otherwise gRPC would treat the pings of ConnectPeer's channels as an attack.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             static_cast<int>(kMinPingInterval.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  std::vector<std::string> names;
  for (const NamedService& service : services) names.emplace_back(service.name);
  auto impl = std::make_unique<Impl>(names);
  impl->ports.resize(addresses.size());
  std::vector<std::unique_ptr<TcpListener>> listeners;
  std::vector<std::shared_ptr<Acceptor>> acceptors;  // of the listeners
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i].starts_with(kUnix)) {
      MOE_ASSIGN_OR_RETURN(impl->locks.emplace_back(), SocketLock::Take(addresses[i].substr(kUnix.size())));
      builder.AddListeningPort(addresses[i], grpc::InsecureServerCredentials());
    } else {
      MOE_ASSIGN_OR_RETURN(listeners.emplace_back(), TcpListener::Bind(addresses[i], FirstBytes(exposure.tls)));
      impl->ports[i] = listeners.back()->port();
      acceptors.push_back(builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, CredentialsOf(exposure.tls)));
    }
  }
  if (!acceptors.empty()) BoundClients(builder, limits);
  if (!exposure.services_only) {
    builder.RegisterService(&impl->health);
    builder.RegisterService(&impl->reflection);
  }
  for (const NamedService& service : services) builder.RegisterService(service.service);
  impl->server = builder.BuildAndStart();
  std::string listed;
  for (const std::string& address : addresses) listed += (listed.empty() ? "" : ", ") + address;
  if (impl->server == nullptr) return absl::UnavailableError("cannot listen on " + listed + ": is it in use?");
  for (size_t i = 0; i < acceptors.size(); ++i) {
    listeners[i]->Serve([acceptor = acceptors[i]](int descriptor) {
      Acceptor::NewConnectionParameters connection;
      connection.fd = descriptor;
      acceptor->HandleNewConnection(&connection);
    });
  }
  {
    MutexLock lock(impl->mutex);
    impl->listeners = std::move(listeners);
  }
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

int RpcServer::port(size_t index) const { return impl_->ports.at(index); }

void RpcServer::SetStarting() { impl_->health.SetStarting(); }
void RpcServer::SetServing(bool serving) { impl_->health.SetServing(serving); }
void RpcServer::SetAlive(bool alive) { impl_->health.SetAlive(alive); }

bool RpcServer::Answers(std::chrono::milliseconds timeout) const {
  MutexLock lock(impl_->mutex);
  return std::ranges::all_of(impl_->listeners, [&](const auto& listener) { return listener->Answers(timeout); });
}

void RpcServer::Drain(std::chrono::milliseconds grace) {
  if (impl_->server == nullptr) return;
  impl_->health.Shutdown();
  {
    MutexLock lock(impl_->mutex);
    impl_->listeners.clear();
  }
  impl_->server->Shutdown(DeadlineIn(grace));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace moestro
