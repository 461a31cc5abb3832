#include "common/rpc/role_server.h"

#include <utility>

#include "common/base/status.h"
#include "common/platform/process_memory.h"
#include "common/telemetry/log.h"

namespace moestro {

RoleServer::RoleServer(std::string role, const NodeOptions& node, MetricsRegistry& registry,
                       TerminationSignal& termination)
    : role_(std::move(role)),
      node_(node),
      registry_(registry),
      termination_(termination),
      private_bytes_(registry.AddGauge("moestro_process_private_bytes",
                                       "Memory of the process itself: without files and shared memory, but with the "
                                       "page tables that map them")),
      page_table_bytes_(registry.AddGauge("moestro_process_page_table_bytes",
                                          "Page tables, a part of the process's private memory: they grow with the "
                                          "mapped weights, less with huge pages")),
      settings_(*node.settings) {}

absl::Status RoleServer::BuildAndStart(std::vector<NamedService> services, std::vector<std::string> addresses,
                                       const RpcLimits& limits, const RpcExposure& exposure) {
  if (!node_.metrics_address.empty()) MOE_RETURN_IF_ERROR(registry_.Serve(node_.metrics_address));
  addresses.push_back(RoleAddress(node_, role_));
  services.push_back({v1::SettingsService::service_full_name(), &settings_});
  MOE_ASSIGN_OR_RETURN(rpc_, RpcServer::Start(addresses, services, limits, exposure));
  MOE_ASSIGN_OR_RETURN(watchdog_, Watchdog::Start(node_, role_, [this](bool alive) { rpc_->SetAlive(alive); }));
  Watch(ticking_);
  return absl::OkStatus();
}

absl::Status RoleServer::Tick(std::chrono::milliseconds period, absl::FunctionRef<absl::Status()> look) {
  absl::Status status;
  std::chrono::steady_clock::time_point memory_read;  // reading costs the kernel more than a tick of an idle role
  while (status.ok() && !termination_.WaitFor(period)) {
    ticking_->Beat();
    if (const auto now = std::chrono::steady_clock::now(); now - memory_read >= std::chrono::seconds(1)) {
      memory_read = now;
      UpdateMemory();
    }
    status = look();
  }
  ticking_->Rest();
  return status;
}

void RoleServer::UpdateMemory() {
  const absl::StatusOr<OwnMemory> own = ReadOwnMemory();
  if (!own.ok()) return;
  private_bytes_.Set(static_cast<double>(own->anonymous_bytes + own->page_table_bytes));
  page_table_bytes_.Set(static_cast<double>(own->page_table_bytes));
}

void RoleServer::Drain(std::chrono::seconds grace) {
  LogInfo("terminating: running requests may finish within {} s", grace.count());
  rpc_->Drain(grace);
}

}  // namespace moestro
