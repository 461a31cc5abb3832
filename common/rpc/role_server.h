// The frame of a role's process: its metrics, RPC server, watchdog, clock tick and orderly shutdown. Each role is a
// class with members in dependency order; this object is the last one, so it ends the calls that use the others.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/heartbeat.h"
#include "common/process/node_options.h"
#include "common/process/process.h"
#include "common/process/watchdog.h"
#include "common/rpc/server.h"
#include "common/rpc/settings_rpc.h"
#include "common/telemetry/metrics.h"

namespace moestro {

class RoleServer {
 public:
  // Grace for running calls after a failure: they cannot finish, and their callers only need to learn of it.
  static constexpr std::chrono::seconds kFailureGrace{1};

  // `role` as in RoleAddress. All arguments must outlive this object.
  RoleServer(std::string role, const NodeOptions& node, MetricsRegistry& registry, TerminationSignal& termination);

  // Serves the metrics, and the services on `addresses` and the role's socket; services must outlive this object. One
  // more tells the settings.
  // Health is NOT_SERVING. UNAVAILABLE names an address that is in use.
  absl::Status BuildAndStart(std::vector<NamedService> services, std::vector<std::string> addresses = {},
                             const RpcLimits& limits = {}, const RpcExposure& exposure = {});

  // Valid after BuildAndStart.
  RpcServer& rpc() { return *rpc_; }
  // From now on that thread must beat, too.
  void Watch(std::shared_ptr<const Heartbeat> heartbeat) { watchdog_->Watch(std::move(heartbeat)); }

  // True once the process must end.
  bool Terminated() { return termination_.WaitFor(std::chrono::milliseconds(0)); }

  // Calls `look` once per period. Returns OK when the process must end, or the error of `look`.
  absl::Status Tick(std::chrono::milliseconds period, absl::FunctionRef<absl::Status()> look);

  // The value of --drain-seconds.
  std::chrono::seconds drain_time() const { return std::chrono::seconds(node_.drain_seconds); }
  // Stops serving: running calls may finish within `grace`, then they are cancelled.
  void Drain(std::chrono::seconds grace);

 private:
  void UpdateMemory();

  const std::string role_;
  const NodeOptions& node_;
  MetricsRegistry& registry_;
  TerminationSignal& termination_;
  prometheus::Gauge& private_bytes_;
  prometheus::Gauge& page_table_bytes_;
  SettingsRpc settings_;
  const std::shared_ptr<Heartbeat> ticking_ = std::make_shared<Heartbeat>("the clock tick");
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace moestro
