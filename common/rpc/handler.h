// The uniform RPC handler: rejects a call whose caller is gone, measures it, runs it, maps its status to the wire.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/telemetry/metrics.h"

namespace moestro {

// OK while the caller waits; else CANCELLED or DEADLINE_EXCEEDED. Cheap enough to call between two layers.
absl::Status CallStatus(const grpc::ServerContext& context);

// One method of a service. Thread-safe.
class RpcMethod {
 public:
  // Adds the method's metrics moestro_rpc_seconds and moestro_rpc_failed_total.
  RpcMethod(MetricsRegistry& registry, const std::string& name);

  // Runs `call` unless the caller is gone, logs a failure, and maps its result or exception to the wire. Reads
  // `request_id` after the call.
  grpc::Status Handle(const grpc::ServerContext& context, absl::FunctionRef<absl::Status()> call,
                      const std::string& request_id = {}) const;

 private:
  const std::string name_;
  prometheus::Histogram& seconds_;
  prometheus::Counter& failed_;
};

}  // namespace moestro
