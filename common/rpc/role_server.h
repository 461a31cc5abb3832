// The frame of a role's process: its metrics, its RPC server, its signs of life, its clock tick and its orderly end.
// Each role is a class whose members stand in the order in which they depend on each other, this one last: it ends the
// calls that use the others.
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
#include "common/telemetry/metrics.h"

namespace moestro {

class RoleServer {
 public:
  // For running calls when nothing can be finished any more: their callers only have to hear of it.
  static constexpr std::chrono::seconds kFailureGrace{1};

  // `role` as in RoleAddress. All must outlive this object.
  RoleServer(std::string role, const NodeOptions& node, MetricsRegistry& registry, TerminationSignal& termination);

  // Serves the metrics, and the services on `addresses` and the role's socket; they must outlive this object. Health
  // says NOT_SERVING. UNAVAILABLE names the address that is taken.
  absl::Status BuildAndStart(const std::vector<NamedService>& services, std::vector<std::string> addresses = {},
                             const RpcLimits& limits = {});

  // From BuildAndStart on.
  RpcServer& rpc() { return *rpc_; }
  // From now on that thread must show signs of life, too.
  void Watch(std::shared_ptr<const Heartbeat> heartbeat) { watchdog_->Watch(std::move(heartbeat)); }

  // True once the process is to end.
  bool Terminated() { return termination_.WaitFor(std::chrono::milliseconds(0)); }

  // Calls `look` once a period until the process is to end (OK) or `look` fails: then with its error.
  absl::Status Tick(std::chrono::milliseconds period, absl::FunctionRef<absl::Status()> look);

  // As long as --drain-seconds says.
  std::chrono::seconds drain_time() const { return std::chrono::seconds(node_.drain_seconds); }
  // The role serves no more; running calls may finish within `grace`, then they are cancelled.
  void Drain(std::chrono::seconds grace);

 private:
  void UpdateMemory();

  const std::string role_;
  const NodeOptions& node_;
  MetricsRegistry& registry_;
  TerminationSignal& termination_;
  prometheus::Gauge& private_bytes_;
  prometheus::Gauge& page_table_bytes_;
  const std::shared_ptr<Heartbeat> ticking_ = std::make_shared<Heartbeat>("the clock tick");
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace moestro
