// The one form of an RPC handler: refuse a call that nobody waits for, measure it, run it, map its status to the wire.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/telemetry/metrics.h"

namespace moestro {

// OK while the caller still waits; else CANCELLED or DEADLINE_EXCEEDED. Cheap enough to be asked between two layers.
absl::Status CallStatus(const grpc::ServerContext& context);

// One method of a service. Thread-safe.
class RpcMethod {
 public:
  // With the metrics moestro_rpc_seconds and moestro_rpc_failed_total of that method.
  RpcMethod(MetricsRegistry& registry, const std::string& name);

  // Runs `call`, logs how it failed, and maps what it returns or throws. Without a caller that waits it is not run.
  // `request_id` is read after the call.
  grpc::Status Handle(const grpc::ServerContext& context, absl::FunctionRef<absl::Status()> call,
                      const std::string& request_id = {}) const;

 private:
  const std::string name_;
  prometheus::Histogram& seconds_;
  prometheus::Counter& failed_;
};

}  // namespace moestro
