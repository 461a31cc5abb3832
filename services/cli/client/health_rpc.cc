#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/cli/client/router_client.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct HealthFlags {
  ServerFlags server;
  std::string service;
};

absl::Status CheckHealth(const HealthFlags& flags) {
  using Health = grpc::health::v1::Health;
  constexpr double kDefaultSeconds = 2;  // a hanging health check is an answer too
  const double seconds = flags.server.timeout_seconds > 0 ? flags.server.timeout_seconds : kDefaultSeconds;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(flags.service);
  grpc::health::v1::HealthCheckResponse reply;
  const grpc::Status status = Health::NewStub(ConnectPeer(flags.server.server))->Check(&context, request, &reply);
  MOE_RETURN_IF_ERROR(FromGrpc(status, flags.server.server.c_str()));
  if (reply.status() != grpc::health::v1::HealthCheckResponse::SERVING) {
    return absl::UnavailableError(flags.server.server + ": " +
                                  grpc::health::v1::HealthCheckResponse::ServingStatus_Name(reply.status()));
  }
  PrintText("SERVING\n");
  return absl::OkStatus();
}

}  // namespace

void AddHealthCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<HealthFlags>();
  FlagSet command =
      program.AddCommand("health", "Check whether the node serves, or one role: --server unix:RUN_DIR/ROLE.sock");
  AddServerFlags(command, flags->server);
  command.Add("--service", flags->service, "gRPC service to check; empty: the whole process");
  commands.push_back({command, [flags] { return CheckHealth(*flags); }});
}

}  // namespace moestro::cli
