#include "services/decode/server.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/kernels/dispatch.h"
#include "common/kv/lease_writer.h"
#include "common/kv/pool.h"
#include "common/model/engine.h"
#include "common/model/routing_recorder.h"
#include "common/platform/cpu_list.h"
#include "common/platform/cpu_split.h"
#include "common/platform/device_loan.h"
#include "common/platform/instance.h"
#include "common/platform/numa.h"
#include "common/platform/shared_cores.h"
#include "common/platform/shared_memory.h"
#include "common/platform/worker_pool.h"
#include "common/roofline/pass_rows.h"
#include "common/rpc/role_server.h"
#include "common/rpc/tokenizer_client.h"
#include "common/rpc/weight_client.h"
#include "common/telemetry/log.h"
#include "services/decode/batch_device.h"
#include "services/decode/decode_loop.h"
#include "services/decode/decode_rpc.h"
#include "services/decode/hybrid_device.h"
#include "services/decode/lease_table.h"
#include "services/decode/metrics.h"
#include "services/decode/pool_grower.h"
#include "services/decode/pool_plan.h"
#include "services/decode/prompt_costs.h"
#include "services/decode/step_limits.h"

namespace moestro::decode {
namespace {

// One request holds one lease. More requests than this could only wait for a place in the batch.
int64_t LeaseSlots(const DecodeConfig& config) { return std::max(256, 2 * RoomToMeasure(config).max_batch); }

// Removes the pools of a killed predecessor. Their names are never used again. Writers that still map one write into
// memory that no process reads, until they see that its owner is gone.
absl::Status RemoveDeadPools(const std::string& instance, bool poison) {
  std::vector<std::string> foreign;
  MOE_ASSIGN_OR_RETURN(const auto found, SharedMemory::List(InstancePrefix(instance) + "kv.", &foreign));
  for (const std::string& line : foreign) LogWarning("{}", line);
  for (const SharedMemory::Listing& object : found) {
    // The listing does not decide: another decode may have just created it.
    const absl::Status removed = kv::KvPoolMapping::RemoveOrphan(object.name, poison);
    if (absl::IsFailedPrecondition(removed)) {
      return absl::UnavailableError("instance '" + instance + "' already has a decode process (it owns " + object.name +
                                    "); choose another --instance");
    }
    MOE_RETURN_IF_ERROR(removed);
    LogInfo("removed {} of a predecessor", object.name);
  }
  return absl::OkStatus();
}

// One for each domain of the workers; without memory of its own where no placement is possible.
std::vector<NumaDomain> DomainsOfPages(int domains) {
  absl::StatusOr<std::vector<NumaDomain>> placed = DomainsToPlaceIn(domains);
  if (!placed.ok()) {
    LogWarning("KV pages cannot be placed by NUMA node ({}); a container needs the capability SYS_NICE",
               std::string(placed.status().message()));
  }
  if (!placed.ok() || placed->empty()) return std::vector<NumaDomain>(static_cast<size_t>(domains));
  return *std::move(placed);
}

absl::StatusOr<std::unique_ptr<kv::KvPool>> CreatePool(const DecodeConfig& config,
                                                       const weights::WeightSegment& weights, int domains,
                                                       int64_t reserve) {
  MOE_RETURN_IF_ERROR(RemoveDeadPools(config.node.instance, config.poison_freed_pages));
  const weights::ModelSpec& spec = weights.spec();
  kv::KvGeometry geometry;
  geometry.num_layers = spec.num_layers;
  geometry.kv_dim = spec.kv_dim();
  geometry.kv_heads = spec.num_kv_heads;
  geometry.lease_slots = LeaseSlots(config);
  MOE_ASSIGN_OR_RETURN(const int64_t spare_bytes, SparePoolBytes(reserve));
  const PoolPlan plan = PlanPool(config, spec.max_position_embeddings, geometry, spare_bytes);
  geometry.page_count = plan.pages;
  if (config.kv_tokens == 0) {
    constexpr double kGib = 1 << 30;
    config.node.settings->Derive(
        "kv-tokens", absl::StrCat(plan.pages * geometry.page_tokens),
        absl::StrFormat("for contexts of %d tokens, %d bytes a token, as far as %.1f GiB of spare memory go; %.1f GiB "
                        "are left to others",
                        spec.max_position_embeddings, geometry.page_bytes() / geometry.page_tokens,
                        static_cast<double>(spare_bytes) / kGib, static_cast<double>(reserve) / kGib));
  }
  // In nanoseconds, so that no other user can take the name beforehand.
  const auto epoch = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  const auto mib = [&](int64_t pages) { return static_cast<double>(pages * geometry.page_bytes()) / (1 << 20); };
  LogInfo("KV pool: up to {} pages of {} tokens, {:.1f} MiB; {:.1f} MiB from the start", plan.pages,
          geometry.page_tokens, mib(plan.pages), mib(plan.first_pages > 0 ? plan.first_pages : plan.pages));
  return kv::KvPool::Create(KvPoolName(config.node.instance, epoch), epoch,
                            {weights.header().fingerprint, Int8ActivationsFlag(config.int8_activations)}, geometry,
                            {.prefix_cache = config.prefix_cache,
                             .poison_freed = config.poison_freed_pages,
                             .domains = DomainsOfPages(domains),
                             .first_pages = plan.first_pages});
}

// The members stand in the order of their dependencies.
class DecodeServer {
 public:
  DecodeServer(const DecodeConfig& config, TerminationSignal& termination)
      : config_(config),
        registry_("decode"),
        metrics_(registry_),
        weight_client_(RoleAddress(config.node, "weight_store"), "decode", registry_,
                       config.cuda_ordinal() ? SharedMemory::ReadOnly::kLiftable : SharedMemory::ReadOnly::kForGood),
        rpc_(registry_, std::chrono::seconds(config.lease_timeout_seconds)),
        server_("decode", config.node, registry_, termination) {}

  absl::Status Run() {
    MOE_ASSIGN_OR_RETURN(kernels_, SelectKernels(config_.int8_activations));
    StartWorkers();
    MOE_RETURN_IF_ERROR(server_.BuildAndStart({{v1::DecodeService::service_full_name(), &rpc_}}));
    MOE_ASSIGN_OR_RETURN(weights_, weight_client_.Attach([this] { return server_.Terminated(); }));
    server_.rpc().SetStarting();
    MOE_ASSIGN_OR_RETURN(cores_, SharedCores::Open(SharedCoresPath(config_.node), SharedCores::Role::kDecode, *workers_,
                                                   {.follow_quota = config_.cpu.threads == 0}));
    TellCpus(config_.cpu, *workers_, cores_->quota(), *config_.node.settings);
    loop_options_.cores = cores_.get();
    MOE_RETURN_IF_ERROR(BuildRecorder());
    MOE_ASSIGN_OR_RETURN(const int64_t reserve, PoolReserve());
    // A GPU has a place for all of its pages.
    MOE_ASSIGN_OR_RETURN(pool_, CreatePool(config_, *weights_, workers_->domains(), reserve));
    const StepLimits room = recorder_ != nullptr ? config_.limits() : RoomToMeasure(config_);
    MOE_ASSIGN_OR_RETURN(ForwardPass * forward, BuildForward(room));
    std::vector<MeasuredLayers> measured = MeasuredSteps(*forward, room);
    const StepLimits limits = SetLimits(measured);
    if (engine_ != nullptr && limits.rows() != room.rows()) {
      MOE_ASSIGN_OR_RETURN(forward, BuildEngine(limits.rows()));
    }
    for (MeasuredLayers& step : measured) {
      step.times = roofline::WithRows(weights_->spec(), std::move(step.times), limits.max_chunk_tokens);
    }
    const std::vector<PromptCost> costs =
        CostsOf(weights_->spec(), measured, loop_options_.chunks, loop_options_.max_batch);
    if (const auto stats = pool_->stats(); stats.total_pages < stats.most_pages) {
      grower_.emplace(*pool_, PoolGrower::Options{.free_pages = stats.total_pages,
                                                  .spare_bytes = [reserve] { return SparePoolBytes(reserve); }});
    }
    leases_.emplace(*pool_, config_.reserve_ahead_tokens);
    loop_.emplace(*forward, *pool_, *leases_, metrics_, loop_options_);
    server_.Watch(loop_->heartbeat());
    const std::string fingerprint = weights_->header().fingerprint;
    grammars_.emplace(
        [this, fingerprint] { return LoadTokenizer(RoleAddress(config_.node, "weight_store"), fingerprint); },
        static_cast<int32_t>(weights_->spec().vocab_size));
    rpc_.Serve(pool_.get(), &*leases_, &*loop_, &*grammars_, fingerprint, costs, BackgroundSequences(config_, limits),
               step_seconds_);
    server_.rpc().SetServing(true);
    LogInfo(
        "ready: {} kernels, {} threads on CPUs {} ({} while prefill computes nothing) in {} NUMA domains "
        "(weights placed for {}), mode {}, batch up to {}",
        kernels_.isa, workers_->own_threads(), FormatCpuList(AllowedCpus()), workers_->threads(), workers_->domains(),
        weights_->numa_domains(), WordOf(kModeWords, config_.mode), limits.max_batch);
    if (cores_->quota()) {
      LogInfo("{} allows {} CPUs: {} threads compute at a time", cores_->quota()->file, cores_->quota()->cpus,
              ThreadsOf(*cores_->quota()));
    }
    const absl::Status ended = server_.Tick(kTick, [this] { return Tick(); });
    server_.Drain(ended.ok() ? server_.drain_time() : RoleServer::kFailureGrace);
    return ended;
  }

 private:
  static constexpr std::chrono::milliseconds kTick{50};

  // An explicit --threads is kept. With a device the CPU computes experts alone, on the role's own cores, for which the
  // schedule is measured. Before anything uses gRPC: if one of its own threads cannot start beside these, it never
  // shuts down.
  void StartWorkers() {
    WorkerPool::Options options = PoolOptions(config_.cpu);
    const bool follows = config_.cpu.threads == 0 && config_.device == "none";
    if (follows) options.lent_cpus = OnePerCore(ReadCpuPlaces(config_.lent_cpus));
    workers_.emplace(options);
  }

  absl::Status BuildRecorder() {
    if (config_.routing_trace.empty()) return absl::OkStatus();
    MOE_ASSIGN_OR_RETURN(recorder_, model::RoutingRecorder::Create(config_.routing_trace, *weights_, kernels_,
                                                                   *workers_, config_.limits().rows()));
    loop_options_.trace = &recorder_->trace();
    return absl::OkStatus();
  }

  // Null without a device, or if the machine has others but not this one: a node with a broken GPU still serves.
  absl::StatusOr<ForwardPass*> BuildHybrid(const StepLimits& room) {
    if (config_.device == "none") return nullptr;
    auto hybrid = HybridDevice::Create(config_, *weights_, kernels_, *workers_, *pool_, room, recorder_.get());
    if (absl::IsNotFound(hybrid.status())) {
      LogWarning("the CPU computes everything until this role starts again: {}",
                 std::string(hybrid.status().message()));
      return nullptr;
    }
    MOE_ASSIGN_OR_RETURN(hybrid_, std::move(hybrid));
    MOE_ASSIGN_OR_RETURN(lent_device_, LentDevice::Lend(DecodeDevicePath(config_.node)));
    loop_options_.lent_device = lent_device_.get();
    metrics_.device.Set(1);
    return &hybrid_->forward();
  }

  absl::StatusOr<ForwardPass*> BuildForward(const StepLimits& room) {
    if (config_.mode == Mode::kThroughput && config_.device != "none") {
      MOE_ASSIGN_OR_RETURN(batch_device_, BatchDevice::Create(config_, *weights_, kernels_, *workers_, room.rows()));
      metrics_.device.Set(1);
      const WeightPages& pages = batch_device_->forward().pages();
      metrics_.batch_resident_ratio.Set(static_cast<double>(pages.resident()) / static_cast<double>(pages.experts()));
      return &batch_device_->forward();
    }
    MOE_ASSIGN_OR_RETURN(ForwardPass * hybrid, BuildHybrid(room));
    return hybrid != nullptr ? hybrid : BuildEngine(room.rows());
  }

  // In place of an earlier one, which is gone before the memory is taken.
  absl::StatusOr<ForwardPass*> BuildEngine(int64_t max_rows) {
    engine_ = nullptr;
    model::Engine::Options options;
    options.max_rows = max_rows;
    if (recorder_ != nullptr) {
      options.on_routing = [this](const model::LayerRouting& routing) { recorder_->Note(routing); };
    }
    MOE_ASSIGN_OR_RETURN(engine_, model::Engine::Create(*weights_, kernels_, *workers_, options));
    return &cpu_forward_.emplace(*engine_);
  }

  // Without them the router goes by its own numbers, and limits are constants, so a failure costs no more than that. A
  // trace records whole passes of requests only.
  std::vector<MeasuredLayers> MeasuredSteps(ForwardPass& forward, const StepLimits& room) {
    if (recorder_ != nullptr) return {};
    const int64_t sequences = std::min(room.max_batch, kMostSequencesForLatency);
    auto measured = MeasureSteps(forward, std::max(room.max_chunk_tokens, sequences), *cores_);
    if (measured.ok()) return *std::move(measured);
    LogWarning("what steps take could not be measured, so the router does not predict prompts: {}",
               std::string(measured.status().message()));
    return {};
  }

  // For those that nobody set.
  void TellLimits(const ChosenLimits& chosen) {
    Settings& settings = *config_.node.settings;
    const StepLimits& limits = chosen.limits;
    if (config_.max_batch == 0) settings.Measure("max-batch", absl::StrCat(limits.max_batch), chosen.of_batch);
    if (config_.itl_bound_ms == 0) {
      const bool none = std::isinf(limits.bound_seconds);
      settings.Measure("itl-bound-ms", none ? "0" : absl::StrCat(1e3 * limits.bound_seconds), chosen.of_bound);
    }
    if (config_.max_chunk_tokens == 0) {
      settings.Measure("max-chunk-tokens", absl::StrCat(limits.max_chunk_tokens), chosen.of_chunk);
    }
  }

  // A device has room for what was measured.
  StepLimits SetLimits(std::span<const MeasuredLayers> measured) {
    const weights::ModelSpec& spec = weights_->spec();
    const int64_t most_chunk = engine_ != nullptr ? roofline::PassRowsWithin(spec, workers_->threads()) : 0;
    const ChosenLimits chosen = ChooseLimits(config_, spec, measured, most_chunk);
    LogInfo("{}", chosen.reason());
    TellLimits(chosen);
    step_seconds_ = chosen.step_seconds;
    loop_options_.max_batch = chosen.limits.max_batch;
    loop_options_.chunks = {.bound_seconds = chosen.limits.bound_seconds,
                            .max_rows = chosen.limits.max_chunk_tokens,
                            .bound_over_base = chosen.limits.bound_over_base};
    return chosen.limits;
  }

  // Handles leases that were not started, pages of dead writers, and gauges.
  absl::Status Tick() {
    if (pool_->damaged() || weights_->memory().damaged()) {
      return absl::UnavailableError("the weight segment or the KV pool is damaged; the next start creates new ones");
    }
    MOE_RETURN_IF_ERROR(loop_->failure());
    metrics_.lease_timeouts.Increment(rpc_.ExpireLeases());
    pool_->Sweep();
    metrics_.Update(pool_->stats(), *leases_);
    if (batch_device_ != nullptr) {
      batch_device_->RetryPinning();
      metrics_.UpdateBatches(batch_device_->forward().counts());
    }
    if (hybrid_ != nullptr) {
      hybrid_->RetryPinning();
      metrics_.UpdateDevice(hybrid_->forward().overlapped_steps(), hybrid_->expert_counts());
    }
    return absl::OkStatus();
  }

  const DecodeConfig& config_;
  CpuKernels kernels_ = {};
  MetricsRegistry registry_;
  DecodeMetrics metrics_;
  WeightClient weight_client_;
  std::unique_ptr<const weights::WeightSegment> weights_;
  std::optional<WorkerPool> workers_;
  std::unique_ptr<SharedCores> cores_;
  std::unique_ptr<model::RoutingRecorder> recorder_;  // null: no trace
  DecodeLoop::Options loop_options_;
  double step_seconds_ = 0;  // of a full batch, as measured; 0: not known
  std::unique_ptr<kv::KvPool> pool_;
  std::optional<PoolGrower> grower_;
  // The CPU alone, the device with the CPU, or the device of batches.
  std::unique_ptr<model::Engine> engine_;
  std::optional<CpuForward> cpu_forward_;
  std::unique_ptr<HybridDevice> hybrid_;
  std::unique_ptr<BatchDevice> batch_device_;
  std::unique_ptr<LentDevice> lent_device_;
  std::optional<LeaseTable> leases_;
  std::optional<DecodeLoop> loop_;
  std::optional<text::grammar::VocabularyGrammars> grammars_;
  DecodeRpc rpc_;
  RoleServer server_;
};

}  // namespace

absl::Status RunDecodeServer(const DecodeConfig& config, TerminationSignal& termination) {
  return DecodeServer(config, termination).Run();
}

}  // namespace moestro::decode
