#include "services/router/server.h"

#include <malloc.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/access/tls_context.h"
#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/process/server_options.h"
#include "common/rpc/role_server.h"
#include "common/telemetry/log.h"
#include "services/router/access/access_control.h"
#include "services/router/admission/admission.h"
#include "services/router/admission/path_policy.h"
#include "services/router/admission/roles.h"
#include "services/router/batches/batches.h"
#include "services/router/http/batch_executor.h"
#include "services/router/http/downloads.h"
#include "services/router/http/routes.h"
#include "services/router/http/server.h"
#include "services/router/metrics.h"
#include "services/router/real_time.h"
#include "services/router/request/request_runner.h"
#include "services/router/rpc/inference_service.h"
#include "services/router/rpc/peer_channels.h"
#include "services/router/rpc/slow_clients.h"
#include "services/router/rpc/weight_follower.h"
#include "services/router/text/served_model.h"

namespace moestro::router {
namespace {

uint64_t RandomBits() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

// host:port with the port that was actually bound.
std::string ListeningAddress(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// The members stand in the order of their dependencies.
// Where a key is needed no web page has one.
CallerRules CallerRulesOf(const RouterConfig& config) {
  return {.keyless = config.keys_file.empty(),
          .loopback = IsLoopback(config.http_address),
          .cors_origin = config.cors_origin,
          .hosts = config.http_hosts};
}

class Router {
 public:
  Router(const RouterConfig& config, TerminationSignal& termination)
      : config_(config),
        reload_(config.keys_file.empty() ? std::nullopt : std::make_optional<ReloadSignal>()),
        registry_("router"),
        metrics_(registry_),
        access_(config.keys_file, registry_, clock_),
        tls_(config.tls),
        board_({.aliases = config.model_aliases, .strict = config.strict_model_names},
               config.max_context_tokens > 0 ? static_cast<uint64_t>(config.max_context_tokens) : UINT64_MAX),
        peers_(RoleAddress(config.node, "prefill"), RoleAddress(config.node, "decode")),
        roles_([this](Role role) { return peers_.Ping(role); }, [this](Role role) { peers_.CutOff(role); }, clock_,
               std::chrono::seconds(config.recovery_seconds)),
        queue_(static_cast<size_t>(config.queue_limit)),
        policy_(PathSettingsOf(config), clock_),
        needed_roles_(NeededRoles(PathSettingsOf(config))),
        runner_(board_, {roles_, queue_, policy_, metrics_, clock_},
                {.default_max_tokens = static_cast<uint32_t>(config.default_max_tokens)}, RandomBits),
        slow_clients_({.stall = std::chrono::seconds(config.write_stall_seconds)}, clock_, metrics_.clients_stalled,
                      metrics_.clients_behind),
        service_(MakeInferenceService(registry_, runner_, board_, peers_, slow_clients_, access_)),
        http_({.address = config.http_address,
               .connections = static_cast<size_t>(config.http_connections),
               .workers = static_cast<size_t>(config.queue_limit + kThreadsBesideTheQueue),
               .callers = CallerRulesOf(config),
               .tls = tls_.enabled() ? &tls_ : nullptr},
              slow_clients_, registry_),
        http_api_{.runner = runner_,
                  .board = board_,
                  .peers = peers_,
                  .workers = http_.workers(),
                  .registry = registry_,
                  .metrics = metrics_,
                  .access = access_,
                  .clock = clock_,
                  .ready = [this] { return Ready(); },
                  .is_public = !IsLoopback(config.http_address),
                  .keep_alive = std::chrono::seconds(config.http_keep_alive_seconds)},
        files_(config.batch_dir + "/files", {}, RandomBits),
        batches_(
            config.batch_dir, {.in_flight = config.batch_in_flight}, files_, batch_metrics_,
            [this](const std::string& tenant) {
              return std::make_unique<BatchExecutor>(http_api_, slow_clients_, tenant);
            },
            RandomBits),
        server_("router", config.node, registry_, termination) {
    if (!config.batch_dir.empty()) {
      http_api_.batches = &batches_;
      http_api_.downloads = &downloads_;
    }
  }

  absl::Status Run() {
    MOE_RETURN_IF_ERROR(access_.Load());
    if (tls_.enabled()) {
      MOE_RETURN_IF_ERROR(tls_.Load());
      NoteCertificate();
    }
    queue_.SetFair(access_.has_several_tenants());
    RpcLimits limits = kRequestLimits;
    limits.threads = config_.queue_limit + kThreadsBesideTheQueue;
    MOE_RETURN_IF_ERROR(Listen(limits));
    if (http_api_.batches != nullptr) MOE_RETURN_IF_ERROR(Annotate(batches_.Start(), "--batch-dir"));
    if (!config_.http_address.empty()) MOE_RETURN_IF_ERROR(http_.Start(MakeEndpoints(http_api_)));
    server_.Watch(polling_);
    WeightFollower follower(RoleAddress(config_.node, "weight_store"), board_, metrics_.weight_store_up,
                            [this] { roles_.ReportProgress(); });
    std::printf("moestro-router ready grpc=%s http=%s\n",
                ListeningAddress(config_.grpc_address, clients().port(0)).c_str(),
                config_.http_address.empty() ? "off" : ListeningAddress(config_.http_address, http_.port()).c_str());
    std::fflush(stdout);
    const absl::Status ended = Serve();
    Drain();
    return ended;
  }

 private:
  // OK if the node can serve requests now; else UNAVAILABLE with the reason.
  absl::Status Ready() const {
    for (const Role role : needed_roles_) {
      if (!roles_.IsUp(role)) return absl::UnavailableError(absl::StrCat(RoleName(role), " does not answer"));
    }
    return board_.Ready().status();
  }

  // An address that others reach serves the API only. Health and reflection, which tell of the node, stay on the role's
  // unix socket, and metrics on their own address.
  absl::Status Listen(const RpcLimits& limits) {
    const std::vector<NamedService> services = {{kInferenceServiceName, service_.get()}};
    if (IsLoopback(config_.grpc_address)) {
      return server_.BuildAndStart(services, {config_.grpc_address}, limits, {.tls = config_.tls});
    }
    LogWarning(
        "{} can be reached by others: gRPC 1.51 of Debian 12 has known holes (CVE-2023-32731, -32732, -33953, -4785, "
        "-44487) with which they can stop this router; let a proxy speak to them (deploy/README.md, Security)",
        config_.grpc_address);
    MOE_RETURN_IF_ERROR(server_.BuildAndStart(services, {}, limits));
    MOE_ASSIGN_OR_RETURN(public_, RpcServer::Start({config_.grpc_address}, services, limits,
                                                   {.services_only = true, .tls = config_.tls}));
    return absl::OkStatus();
  }

  // The server that clients over TCP reach.
  RpcServer& clients() { return public_ != nullptr ? *public_ : server_.rpc(); }

  void Drain() {
    const auto deadline = std::chrono::steady_clock::now() + server_.drain_time();
    batches_.Stop();
    http_.BeginDrain();
    std::thread drain;
    if (public_ != nullptr) drain = std::thread([this] { public_->Drain(server_.drain_time()); });
    server_.Drain(server_.drain_time());
    if (drain.joinable()) drain.join();
    http_.FinishDrain(deadline);
  }

  // Keeps health and gauges current until the process ends. A separate thread asks the roles: a role that hangs must
  // not delay SIGTERM. UNAVAILABLE if clients no longer get answers.
  absl::Status Serve() {
    std::atomic<bool> stop = false;
    std::atomic<int> unanswered = 0;  // consecutive failed calls to ourselves
    std::thread watcher([&] { WatchRoles(stop, unanswered); });
    const absl::Status ended = server_.Tick(kPollInterval, [&] {
      access_.Reload(/*always=*/reload_ && reload_->Arrived());
      queue_.SetFair(access_.has_several_tenants());
      ReloadTls();
      if (unanswered < kMostUnanswered) return absl::OkStatus();
      return absl::UnavailableError("clients at " + config_.grpc_address + " no longer get answers");
    });
    server_.rpc().SetServing(false);
    stop = true;
    watcher.join();
    server_.rpc().SetServing(false);  // The watcher may have changed it last.
    return ended;
  }

  // gRPC follows the same files by itself.
  void ReloadTls() {
    const absl::StatusOr<bool> reloaded = tls_.Reload();
    if (!reloaded.ok()) {
      metrics_.tls_reloads_failed.Increment();
      LogError("{}; the certificate before it stays in use", std::string(reloaded.status().message()));
    } else if (*reloaded) {
      NoteCertificate();
    }
  }

  void NoteCertificate() {
    metrics_.tls_expires.Set(absl::ToDoubleSeconds(tls_.expires() - absl::UnixEpoch()));
    LogInfo("TLS: the certificate {} expires at {}", config_.tls.certificate, absl::FormatTime(tls_.expires()));
  }

  void WatchRoles(const std::atomic<bool>& stop, std::atomic<int>& unanswered) {
    RpcServer& rpc = server_.rpc();
    bool serving = false;
    int64_t polls = 0;
    while (!stop) {
      polling_->Beat();
      const absl::Status polled = CatchExceptions([&] {
        serving = Poll(serving);
        if (++polls % kPollsBetweenAnswers == 0) unanswered = clients().Answers(kAnswerTime) ? 0 : unanswered + 1;
        if (!stop) rpc.SetServing(serving && unanswered == 0);
        return absl::OkStatus();
      });
      if (!polled.ok()) LogError("asking the roles: {}", std::string(polled.message()));
      for (int i = 0; i < 10 && !stop; ++i) std::this_thread::sleep_for(kPollInterval / 10);
    }
    polling_->Rest();
  }

  // Whether the node serves now; `was_serving`: at the last poll.
  bool Poll(bool was_serving) {
    roles_.Poll();
    slow_clients_.CancelStalled();
    if (const auto model = board_.Described(); model.ok()) {
      registry_.SetModelName((*model)->name);
      TellContext(**model);
    }
    for (const Role role : kServingRoles) metrics_.role_up[static_cast<size_t>(role)]->Set(roles_.IsUp(role));
    FollowCosts();
    const bool serving = Ready().ok();
    if (serving != was_serving) LogInfo("{}", serving ? "serving" : "not serving");
    return serving;
  }

  // What is served may be less than the owner allows.
  void TellContext(const ServedModel& model) {
    const uint32_t tokens = model.max_context_tokens;
    if (tokens == std::exchange(told_context_, tokens)) return;
    if (config_.default_max_tokens == 0 && model.default_max_tokens > 0) {
      config_.node.settings->Derive("default-max-tokens", absl::StrCat(model.default_max_tokens),
                                    "max_new_tokens of the checkpoint's generation_config.json");
    }
    config_.node.settings->Derive("max-context-tokens", absl::StrCat(tokens),
                                  "the least of the model's context, what decode's KV pool can hold, and this setting");
  }

  // A role that restarts may do so between two polls, so figures are asked for again and again; the same ones change
  // nothing.
  void FollowCosts() {
    const bool again = polls_++ % kPollsBetweenCosts == 0;
    for (const Role role : kServingRoles) {
      bool& known = costs_known_[static_cast<size_t>(role)];
      if (!roles_.IsUp(role)) {
        if (std::exchange(known, false)) policy_.SetCosts(role, {});
      } else if (!known || again) {
        const auto figures = peers_.Figures(role);
        known = figures.has_value();
        policy_.SetCosts(role, figures ? figures->costs : std::vector<PromptCost>());
        if (figures && figures->kv_tokens > 0) board_.SetKvTokens(figures->kv_tokens);
        if (figures && figures->background_sequences > 0) FollowPlaces(figures->background_sequences);
        if (figures && role == Role::kDecode) metrics_.SetStepSeconds(figures->step_seconds);
      }
    }
    for (const PromptWay way : kPromptWays) metrics_.PredictionCorrection(way).Set(policy_.correction(way));
  }

  void FollowPlaces(int places) {
    batches_.SetPlaces(places);
    if (config_.batch_in_flight > 0) return;
    config_.node.settings->Derive("batch-in-flight", absl::StrCat(places), "decode's max-batch, and its mode");
  }

  // For calls that neither queue nor run, such as tokenizing.
  static constexpr int kThreadsBesideTheQueue = 256;
  static constexpr std::chrono::milliseconds kPollInterval{500};
  // Checks every five seconds whether clients get answers.
  static constexpr int kPollsBetweenAnswers = 10;
  static constexpr int kPollsBetweenCosts = 10;
  static constexpr std::chrono::milliseconds kAnswerTime{3000};
  static constexpr int kMostUnanswered = 3;

  const RouterConfig& config_;
  std::optional<ReloadSignal> reload_;  // before all threads
  SteadyClock clock_;
  MetricsRegistry registry_;
  RouterMetrics metrics_;
  AccessControl access_;
  access::TlsContext tls_;
  ModelBoard board_;
  uint32_t told_context_ = 0;
  PeerChannels peers_;
  RoleMonitor roles_;
  AdmissionQueue queue_;
  PathPolicy policy_;
  // Used by the thread that asks the roles only.
  std::array<bool, kServingRoles.size()> costs_known_{};
  int64_t polls_ = 0;
  const std::vector<Role> needed_roles_;
  RequestRunner runner_;
  SlowClients slow_clients_;
  std::shared_ptr<grpc::Service> service_;
  HttpServer http_;
  HttpApi http_api_;
  FileStore files_;
  BatchMetrics batch_metrics_{registry_};
  Downloads downloads_;
  Batches batches_;  // ends before what its requests use
  const std::shared_ptr<Heartbeat> polling_ = std::make_shared<Heartbeat>("the thread that asks the roles");
  RoleServer server_;
  std::unique_ptr<RpcServer> public_;  // if others reach the address; ends first
};

// glibc keeps what is freed, and the more of it, the larger the pieces were: after some large requests that is hundreds
// of MiB for each of its arenas. With fixed limits, large pieces go back to the system at once.
void ReturnFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

}  // namespace

absl::Status RunRouterServer(const RouterConfig& config, TerminationSignal& termination) {
  ReturnFreedMemory();
  if (config.real_time == RealTime::kAuto) {  // before there are threads
    const RealTimeChoice choice = TakeRealTimePriority();
    LogInfo("real-time priority: {} ({})", choice.real_time ? "yes" : "no", choice.reason);
  }
  return Router(config, termination).Run();
}

}  // namespace moestro::router
