#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>

#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/health_rpc.h"
#include "common/rpc/socket_lock.h"

namespace moestro {

struct RpcServer::Impl {
  explicit Impl(const std::vector<std::string>& names) : health(names) {}

  HealthRpc health;                                // outlives the server
  std::vector<std::unique_ptr<SocketLock>> locks;  // they too: with the server goes its socket
  std::unique_ptr<grpc::Server> server;
  std::vector<int> ports;
};

namespace {

constexpr std::string_view kUnix = "unix:";

}  // namespace

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RpcServer::~RpcServer() { Drain(std::chrono::milliseconds(0)); }

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::vector<std::string>& addresses,
                                                            const std::vector<NamedService>& services) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  // Two servers on one port would each get some of the calls: refuse instead.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  std::vector<std::string> names;
  for (const NamedService& service : services) names.emplace_back(service.name);
  auto impl = std::make_unique<Impl>(names);
  impl->ports.resize(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i].starts_with(kUnix)) {
      MOE_ASSIGN_OR_RETURN(impl->locks.emplace_back(), SocketLock::Take(addresses[i].substr(kUnix.size())));
    }
    builder.AddListeningPort(addresses[i], grpc::InsecureServerCredentials(), &impl->ports[i]);
  }
  builder.RegisterService(&impl->health);
  for (const NamedService& service : services) builder.RegisterService(service.service);
  impl->server = builder.BuildAndStart();
  std::string listed;
  for (const std::string& address : addresses) listed += (listed.empty() ? "" : ", ") + address;
  if (impl->server == nullptr) return absl::UnavailableError("cannot listen on " + listed + ": is it in use?");
  std::unique_ptr<RpcServer> result(new RpcServer(std::move(impl)));
  for (size_t i = 0; i < addresses.size(); ++i) {
    const bool is_unix = addresses[i].starts_with(kUnix);
    if (is_unix) result->impl_->ports[i] = 0;
    if (!is_unix && result->impl_->ports[i] == 0) return absl::UnavailableError("cannot listen on " + addresses[i]);
  }
  return result;
}

int RpcServer::port(size_t index) const { return impl_->ports.at(index); }

void RpcServer::SetServing(bool serving) { impl_->health.SetServing(serving); }

void RpcServer::Drain(std::chrono::milliseconds grace) {
  if (impl_->server == nullptr) return;
  impl_->health.Shutdown();
  impl_->server->Shutdown(std::chrono::system_clock::now() + grace);
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace moestro
