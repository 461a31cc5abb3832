#include "services/prefill/server.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/steady_seconds.h"
#include "common/kernels/dispatch.h"
#include "common/model/engine.h"
#include "common/platform/cpu_list.h"
#include "common/platform/cpu_split.h"
#include "common/platform/numa.h"
#include "common/platform/shared_cores.h"
#include "common/platform/worker_pool.h"
#include "common/roofline/pass_rows.h"
#include "common/rpc/role_server.h"
#include "common/rpc/tokenizer_client.h"
#include "common/rpc/weight_client.h"
#include "common/telemetry/log.h"
#include "services/prefill/metrics.h"
#include "services/prefill/prefill_backends.h"
#include "services/prefill/prefill_rpc.h"
#include "services/prefill/prefill_runner.h"
#include "services/prefill/prompt_costs.h"

namespace moestro::prefill {
namespace {

// The members stand in the order of their dependencies.
class PrefillServer {
 public:
  PrefillServer(const PrefillConfig& config, TerminationSignal& termination)
      : config_(config),
        registry_("prefill"),
        metrics_(registry_),
        weight_client_(RoleAddress(config.node, "weight_store"), "prefill", registry_,
                       config.stream.has_gpu() ? SharedMemory::ReadOnly::kLiftable : SharedMemory::ReadOnly::kForGood),
        rpc_(registry_, metrics_, static_cast<size_t>(config.queue_limit)),
        server_("prefill", config.node, registry_, termination) {}

  absl::Status Run() {
    MOE_ASSIGN_OR_RETURN(kernels_, SelectKernels(config_.int8_activations));
    kernels_.fp8_activations = config_.activations == PrefillActivations::kFp8;
    StartWorkers();
    MOE_RETURN_IF_ERROR(server_.BuildAndStart({{v1::PrefillService::service_full_name(), &rpc_}}));
    MOE_ASSIGN_OR_RETURN(weights_, weight_client_.Attach([this] { return server_.Terminated(); }));
    server_.rpc().SetStarting();
    MOE_RETURN_IF_ERROR(BuildRunner());
    server_.Watch(runner_->heartbeat());
    const std::string fingerprint = weights_->header().fingerprint;
    grammars_.emplace(
        [this, fingerprint] { return LoadTokenizer(RoleAddress(config_.node, "weight_store"), fingerprint); },
        static_cast<int32_t>(weights_->spec().vocab_size));
    rpc_.SetCosts(MeasuredCosts());
    rpc_.Serve(&*runner_, &*grammars_, {fingerprint, Int8ActivationsFlag(config_.int8_activations)});
    server_.rpc().SetServing(true);
    LogInfo(
        "ready: {} kernels, {} threads on CPUs {} ({} while decode computes nothing) in {} NUMA domains (weights "
        "placed for {}), chunks of {} tokens, MLA form {}",
        kernels_.isa, workers_->own_threads(), FormatCpuList(AllowedCpus()), workers_->threads(), workers_->domains(),
        weights_->numa_domains(), engine_->max_rows(), WordOf(kMlaFormWords, config_.mla_form.choice));
    if (cores_->quota()) {
      LogInfo("{} allows {} CPUs: {} threads compute at a time", cores_->quota()->file, cores_->quota()->cpus,
              ThreadsOf(*cores_->quota()));
    }
    const absl::Status ended = server_.Tick(kTick, [this] { return Tick(); });
    server_.Drain(ended.ok() ? server_.drain_time() : RoleServer::kFailureGrace);
    return ended;
  }

 private:
  static constexpr std::chrono::milliseconds kTick{250};

  // Before anything uses gRPC: if one of its own threads cannot start beside these, it never shuts down.
  void StartWorkers() {
    WorkerPool::Options options = PoolOptions(config_.cpu);
    if (config_.cpu.threads == 0)
      options.lent_cpus = OnePerCore(ReadCpuPlaces(config_.lent_cpus));  // an explicit --threads is kept
    workers_.emplace(options);
  }

  absl::Status BuildRunner() {
    MOE_ASSIGN_OR_RETURN(cores_, SharedCores::Open(SharedCoresPath(config_.node), SharedCores::Role::kPrefill,
                                                   *workers_, {.follow_quota = config_.cpu.threads == 0}));
    TellCpus(config_.cpu, *workers_, cores_->quota(), *config_.node.settings);
    MOE_RETURN_IF_ERROR(BuildEngine());
    MOE_ASSIGN_OR_RETURN(streaming_, PrefillBackends::Create(config_, weights_, kernels_, *workers_));
    StreamPath path;
    if (streaming_ != nullptr) {
      path = {.prefill = [this] { return streaming_->prefill(); },
              .from_tokens = config_.stream.from_tokens,
              .trace_file = config_.stream.trace_file,
              .between_prompts = [this] { BetweenPrompts(); },
              .fp8_inputs = [this] { return streaming_->state().fp8_inputs; }};
    }
    runner_.emplace(*engine_, *workers_, config_.mla_form, std::move(path), cores_.get());
    return absl::OkStatus();
  }

  // With as many rows in a pass as are set, or as follows from what an engine of few rows takes.
  absl::Status BuildEngine() {
    const auto build = [this](int64_t max_rows) -> absl::Status {
      engine_ = nullptr;  // first, so that its memory is free
      model::Engine::Options options;
      options.max_rows = max_rows;
      MOE_ASSIGN_OR_RETURN(engine_, model::Engine::Create(*weights_, kernels_, *workers_, options));
      return absl::OkStatus();
    };
    const bool is_set = config_.chunk_tokens > 0;
    MOE_RETURN_IF_ERROR(build(config_.tile_tokens()));
    const auto measured = MeasureInPlace(config_.mla_form, *engine_, *cores_);
    if (!measured.ok()) {
      WarnOf("in place", measured.status());
      return absl::OkStatus();
    }
    const weights::ModelSpec& spec = weights_->spec();
    int64_t rows = engine_->max_rows();
    if (!is_set) {
      rows = ChooseChunk(spec, *measured, workers_->threads());
      const roofline::PassTimes pass = roofline::PassTimesOf(spec, measured->back().times);
      const std::string reason =
          absl::StrFormat("reading all weights takes %.3g ms, a row %.3g ms", 1e3 * pass.read, 1e3 * pass.row);
      LogInfo("passes of {} tokens: {}", rows, reason);
      config_.node.settings->Measure("chunk-tokens", absl::StrCat(rows), reason);
      if (rows != engine_->max_rows()) MOE_RETURN_IF_ERROR(build(rows));
    }
    in_place_costs_ = InPlaceCosts(spec, *measured, config_.mla_form, rows);
    return absl::OkStatus();
  }

  // Other devices take other times.
  void BetweenPrompts() {
    streaming_->BetweenPrompts(SteadySeconds());
    if (streaming_->state().open != measured_devices_) rpc_.SetCosts(MeasuredCosts());
  }

  // Without what was not measured the router goes by its own numbers, so a failure costs no more than that.
  static void WarnOf(const char* how, const absl::Status& status) {
    LogWarning("what prompts take {} could not be measured, so the router does not predict it: {}", how,
               std::string(status.message()));
  }

  std::vector<PromptCost> MeasuredCosts() {
    std::vector<PromptCost> costs = in_place_costs_;
    if (streaming_ == nullptr) return costs;
    measured_devices_ = streaming_->state().open;
    const auto streamed = streaming_->MeasureCosts();
    if (streamed.ok()) {
      costs.insert(costs.end(), streamed->begin(), streamed->end());
    } else {
      WarnOf("streamed", streamed.status());
    }
    return costs;
  }

  absl::Status Tick() {
    if (weights_->memory().damaged()) {
      return absl::UnavailableError("the weight segment is damaged; the next start maps a new one");
    }
    metrics_.waiting.Set(static_cast<double>(rpc_.waiting()));
    rpc_.Tick();
    if (streaming_ != nullptr) metrics_.Update(streaming_->state());
    return absl::OkStatus();
  }

  const PrefillConfig& config_;
  CpuKernels kernels_ = {};
  MetricsRegistry registry_;
  PrefillMetrics metrics_;
  WeightClient weight_client_;
  std::shared_ptr<const weights::WeightSegment> weights_;
  std::optional<WorkerPool> workers_;
  std::unique_ptr<SharedCores> cores_;
  std::unique_ptr<model::Engine> engine_;
  std::vector<PromptCost> in_place_costs_;
  std::unique_ptr<PrefillBackends> streaming_;  // null: the settings name no device
  int64_t measured_devices_ = 0;                // that were open at the last measurement
  std::optional<PrefillRunner> runner_;
  std::optional<text::grammar::VocabularyGrammars> grammars_;
  PrefillRpc rpc_;
  RoleServer server_;
};

}  // namespace

absl::Status RunPrefillServer(const PrefillConfig& config, TerminationSignal& termination) {
  return PrefillServer(config, termination).Run();
}

}  // namespace moestro::prefill
