#include "services/router/server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/process.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "services/router/admission.h"
#include "services/router/metrics.h"
#include "services/router/policy/path_policy.h"
#include "services/router/request_runner.h"
#include "services/router/roles.h"
#include "services/router/rpc/inference_service.h"
#include "services/router/rpc/peer_channels.h"
#include "services/router/rpc/weight_follower.h"
#include "services/router/served_model.h"

namespace moestro {
namespace {

uint64_t RandomBits() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

// host:port with the port that was really taken.
std::string ListeningAddress(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// The parts in the order in which they depend on each other.
class Router {
 public:
  explicit Router(const RouterConfig& config)
      : config_(config),
        registry_("router"),
        metrics_(registry_),
        peers_(RoleAddress(config.node, "prefill"), RoleAddress(config.node, "decode")),
        roles_([this](Role role) { return peers_.Ping(role); }, clock_, std::chrono::seconds(config.recovery_seconds)),
        queue_(static_cast<size_t>(config.queue_limit)),
        policy_(PathSettingsOf(config), clock_),
        needed_roles_(NeededRoles(PathSettingsOf(config))),
        runner_(board_, {roles_, queue_, policy_, metrics_, clock_},
                {.default_max_tokens = static_cast<uint32_t>(config.default_max_tokens)}, RandomBits),
        service_(MakeInferenceService(runner_, board_, peers_)) {}

  absl::Status Run(TerminationSignal& termination) {
    if (!config_.node.metrics_address.empty()) MOE_RETURN_IF_ERROR(registry_.Serve(config_.node.metrics_address));
    MOE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                         RpcServer::Start({config_.grpc_address, RoleAddress(config_.node, "router")},
                                          {{kInferenceServiceName, service_.get()}}));
    WeightFollower follower(RoleAddress(config_.node, "weight_store"), board_, metrics_.weight_store_up);
    std::printf("moestro-router ready grpc=%s\n", ListeningAddress(config_.grpc_address, server->port(0)).c_str());
    std::fflush(stdout);
    ServeUntil(termination, *server);
    spdlog::info("terminating: running requests may finish within {} s", config_.node.drain_seconds);
    server->Drain(std::chrono::seconds(config_.node.drain_seconds));
    return absl::OkStatus();
  }

 private:
  // Keeps health and gauges true. A thread of its own asks the roles: a role that hangs must not delay SIGTERM.
  void ServeUntil(TerminationSignal& termination, RpcServer& server) {
    std::atomic<bool> stop = false;
    std::thread watcher([&] {
      bool was_serving = false;
      while (!stop) {
        roles_.Poll();
        if (const auto model = board_.Described(); model.ok()) registry_.SetModelName((*model)->name);
        const bool roles_up = std::ranges::all_of(needed_roles_, [&](Role role) { return roles_.IsUp(role); });
        for (const Role role : kServingRoles) metrics_.role_up[static_cast<size_t>(role)]->Set(roles_.IsUp(role));
        const bool serving = roles_up && board_.Ready().ok();
        if (serving != was_serving) spdlog::info(serving ? "serving" : "not serving");
        if (!stop) server.SetServing(serving);
        was_serving = serving;
        for (int i = 0; i < 10 && !stop; ++i) std::this_thread::sleep_for(kPollInterval / 10);
      }
    });
    while (!termination.WaitFor(kPollInterval)) {
    }
    server.SetServing(false);
    stop = true;
    watcher.join();
    server.SetServing(false);  // The watcher may have spoken last.
  }

  static constexpr std::chrono::milliseconds kPollInterval{500};

  const RouterConfig& config_;
  SteadyClock clock_;
  MetricsRegistry registry_;
  RouterMetrics metrics_;
  ModelBoard board_;
  PeerChannels peers_;
  RoleMonitor roles_;
  AdmissionQueue queue_;
  PathPolicy policy_;
  const std::vector<Role> needed_roles_;
  RequestRunner runner_;
  std::shared_ptr<grpc::Service> service_;
};

}  // namespace

absl::Status RunRouterServer(const RouterConfig& config, TerminationSignal& termination) {
  return Router(config).Run(termination);
}

}  // namespace moestro
