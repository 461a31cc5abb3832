#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
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
  const std::string& address = flags.server.router.address;
  MOE_ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(flags.server.credentials));
  grpc::ClientContext context;
  if (flags.server.timeout_seconds > 0) {
    context.set_deadline(DeadlineIn(std::chrono::duration<double>(flags.server.timeout_seconds)));
  }
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(flags.service);
  grpc::health::v1::HealthCheckResponse reply;
  const auto channel = ConnectServer(flags.server.router, credentials.authorities);
  const grpc::Status status = Health::NewStub(channel)->Check(&context, request, &reply);
  MOE_RETURN_IF_ERROR(FromServer(status, flags.server.router, address.c_str()));
  if (reply.status() != grpc::health::v1::HealthCheckResponse::SERVING) {
    return absl::UnavailableError(address + ": " +
                                  grpc::health::v1::HealthCheckResponse::ServingStatus_Name(reply.status()));
  }
  PrintText("SERVING\n");
  return absl::OkStatus();
}

}  // namespace

void AddHealthCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<HealthFlags>();
  flags->server.timeout_seconds = 2;  // a hanging health check is an answer too
  FlagSet command =
      program.AddCommand("health", "Check whether the node serves, or one role: --server unix:RUN_DIR/ROLE.sock");
  AddServerFlags(command, flags->server);
  command.Add("--service", flags->service, "gRPC service to check; empty: the whole process");
  commands.push_back({command, [flags] { return CheckHealth(*flags); }});
}

}  // namespace moestro::cli
