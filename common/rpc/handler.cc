#include "common/rpc/handler.h"

#include <chrono>

#include "common/base/exceptions.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "common/telemetry/log.h"

namespace moestro {

absl::Status CallStatus(const grpc::ServerContext& context) {
  if (const auto deadline = DeadlineOf(context); deadline && std::chrono::steady_clock::now() >= *deadline) {
    return absl::DeadlineExceededError("the request's deadline has passed");
  }
  if (context.IsCancelled()) return absl::CancelledError("the caller went away");
  return absl::OkStatus();
}

RpcMethod::RpcMethod(MetricsRegistry& registry, const std::string& name)
    : name_(name),
      seconds_(registry.AddHistogram("moestro_rpc_seconds", "Time of a call, from its arrival to its end",
                                     RequestSecondsBuckets(), {{"method", name}})),
      failed_(registry.AddCounter("moestro_rpc_failed_total", "Calls that ended with an error", {{"method", name}})) {}

grpc::Status RpcMethod::Handle(const grpc::ServerContext& context, absl::FunctionRef<absl::Status()> call,
                               const std::string& request_id) const {
  const auto start = std::chrono::steady_clock::now();
  absl::Status status = CallStatus(context);
  if (status.ok()) status = CatchExceptions(call);
  seconds_.Observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (!status.ok()) {
    failed_.Increment();
    LogDebug("[{}] {} ended: {}", request_id, name_, status.ToString());
  }
  return ToGrpc(status);
}

}  // namespace moestro
