#include "services/cli/client/status/look_rpc.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>

#include "common/base/steady_seconds.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/telemetry/http_get.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "moestro/v1/inference.grpc.pb.h"

namespace moestro::cli::status {
namespace {

void AskHealth(const std::shared_ptr<grpc::Channel>& channel, double timeout_seconds, RoleLook& role) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(std::chrono::duration<double>(timeout_seconds)));
  grpc::health::v1::HealthCheckResponse reply;
  role.up = grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &reply).ok();
  role.serving = role.up && reply.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

std::optional<NodeModel> AskModel(const std::shared_ptr<grpc::Channel>& channel, double timeout_seconds) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(std::chrono::duration<double>(timeout_seconds)));
  v1::GetModelResponse reply;
  if (!v1::InferenceService::NewStub(channel)->GetModel(&context, {}, &reply).ok()) return std::nullopt;
  return NodeModel{.name = reply.name(),
                   .family = reply.family(),
                   .fingerprint = reply.fingerprint(),
                   .segment_bytes = reply.segment_bytes()};
}

std::optional<ScrapedMetrics> AskMetrics(const MetricsAddresses& addresses, const std::string& role,
                                         double timeout_seconds) {
  const auto address = addresses.find(role);
  if (address == addresses.end()) return std::nullopt;
  const absl::StatusOr<Url> url = ParseUrl(address->second);
  if (!url.ok()) return std::nullopt;
  const absl::StatusOr<std::string> text = HttpGet(*url, timeout_seconds);
  if (!text.ok()) return std::nullopt;
  return ParsePrometheusText(*text);
}

}  // namespace

Look LookAt(const std::string& run_dir, const MetricsAddresses& metrics, double timeout_seconds) {
  Look look;
  look.at = SteadySeconds();
  for (const std::string name : kRoles) {
    RoleLook& role = look.roles[name];
    const std::shared_ptr<grpc::Channel> channel =
        ConnectServer({.address = "unix:" + run_dir + "/" + name + ".sock", .connect_seconds = timeout_seconds});
    AskHealth(channel, timeout_seconds, role);
    if (name == "router" && role.up) look.model = AskModel(channel, timeout_seconds);
    role.metrics = AskMetrics(metrics, name, timeout_seconds);
  }
  return look;
}

}  // namespace moestro::cli::status
