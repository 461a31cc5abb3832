#include "services/decode/server.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/kernels/dispatch.h"
#include "common/kv/lease_writer.h"
#include "common/kv/pool.h"
#include "common/model/engine.h"
#include "common/platform/cpu_list.h"
#include "common/platform/device_loan.h"
#include "common/platform/instance.h"
#include "common/platform/numa.h"
#include "common/platform/process_memory.h"
#include "common/platform/shared_memory.h"
#include "common/platform/worker_pool.h"
#include "common/rpc/process.h"
#include "common/rpc/server.h"
#include "common/rpc/weight_client.h"
#include "common/telemetry/metrics.h"
#include "services/decode/decode_loop.h"
#include "services/decode/decode_rpc.h"
#include "services/decode/hybrid_device.h"
#include "services/decode/lease_table.h"
#include "services/decode/metrics.h"

namespace moestro {
namespace {

// One request holds one lease; more than this many can only be waiting for a place in the batch.
constexpr int64_t kLeaseSlots = 256;

// When the device is lost all sequences have ended: their callers only have to hear of it.
constexpr std::chrono::seconds kFailureGrace(1);

// What a killed predecessor left behind. Its name is gone for good: writers that still have it mapped write into memory
// that nobody reads, until they see that its owner is gone.
absl::Status RemoveDeadPools(const std::string& instance) {
  MOE_ASSIGN_OR_RETURN(const auto found, SharedMemory::List(InstancePrefix(instance) + "kv."));
  for (const SharedMemory::Listing& object : found) {
    if (object.owner_alive) {
      return absl::UnavailableError("instance '" + instance + "' already has a decode process (it owns " + object.name +
                                    "); choose another --instance");
    }
    spdlog::info("removing {} of a predecessor", object.name);
    MOE_RETURN_IF_ERROR(KvPoolMapping::RemoveOrphan(object.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KvPool>> CreatePool(const DecodeConfig& config, const WeightSegment& weights) {
  MOE_RETURN_IF_ERROR(RemoveDeadPools(config.node.instance));
  const ModelSpec& spec = weights.spec();
  KvGeometry geometry;
  geometry.num_layers = spec.num_layers;
  geometry.kv_dim = spec.kv_dim();
  geometry.lease_slots = kLeaseSlots;
  MOE_ASSIGN_OR_RETURN(const int64_t free_bytes, SharedMemory::FreeBytes());
  const int64_t bytes_per_token = geometry.page_bytes() / geometry.page_tokens;
  const int64_t tokens = config.kv_tokens > 0
                             ? config.kv_tokens
                             : ChooseKvTokens(spec.max_position_embeddings, bytes_per_token, free_bytes);
  geometry.page_count = CeilDiv(tokens, geometry.page_tokens);
  const auto epoch = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  spdlog::info("KV pool: {} pages of {} tokens, {:.1f} MiB", geometry.page_count, geometry.page_tokens,
               static_cast<double>(geometry.page_count * geometry.page_bytes()) / (1 << 20));
  return KvPool::Create(KvPoolName(config.node.instance, epoch), epoch, weights.header().fingerprint, geometry,
                        {.prefix_cache = config.prefix_cache});
}

}  // namespace

absl::Status RunDecodeServer(const DecodeConfig& config, TerminationSignal& termination) {
  MOE_ASSIGN_OR_RETURN(const CpuKernels* kernels, SelectKernels());
  MetricsRegistry registry("decode");
  DecodeMetrics metrics(registry);
  if (!config.node.metrics_address.empty()) MOE_RETURN_IF_ERROR(registry.Serve(config.node.metrics_address));

  std::unique_ptr<KvPool> pool;
  std::unique_ptr<LeaseTable> leases;
  std::unique_ptr<DecodeLoop> loop;
  DecodeRpc rpc{std::chrono::seconds(config.lease_timeout_seconds)};
  MOE_ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start({RoleAddress(config.node, "decode")}, {{v1::Decode::service_full_name(), &rpc}}));

  WeightClient weight_client(RoleAddress(config.node, "weight_store"), "decode");
  const auto stop = [&] { return termination.WaitFor(std::chrono::milliseconds(0)); };
  absl::StatusOr<std::unique_ptr<const WeightSegment>> weights = weight_client.Attach(stop);
  if (absl::IsCancelled(weights.status())) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(weights);
  registry.SetModelName(weight_client.model_name());
  metrics.weights_attached.Set(static_cast<double>((*weights)->header().total_bytes));

  WorkerPool workers(PoolOptions(config.cpu));
  DecodeLoop::Options loop_options{
      .max_batch = config.max_batch,
      .chunks = {.bound_seconds = config.itl_bound_ms / 1000.0, .max_rows = config.max_chunk_tokens}};
  Engine::Options options;
  options.max_rows = loop_options.max_rows();
  std::unique_ptr<RoutingTraceWriter> trace;
  if (!config.routing_trace.empty()) {
    MOE_ASSIGN_OR_RETURN(
        trace, RoutingTraceWriter::Create(config.routing_trace,
                                          TraceModelOf((*weights)->spec(), (*weights)->header().fingerprint)));
    loop_options.trace = trace.get();
    options.on_routing = [&trace](int64_t layer, std::span<const ExpertChoice> choices) {
      trace->Note(layer, 0, choices);
    };
  }
  MOE_ASSIGN_OR_RETURN(pool, CreatePool(config, **weights));  // all of which a GPU has a place for
  std::unique_ptr<Engine> engine;
  std::unique_ptr<CpuForward> cpu_forward;
  std::unique_ptr<HybridDevice> hybrid;
  std::unique_ptr<LentDevice> lent_device;
  ForwardPass* forward = nullptr;
  if (config.device == "none") {
    MOE_ASSIGN_OR_RETURN(engine, Engine::Create(**weights, *kernels, workers, options));
    cpu_forward = std::make_unique<CpuForward>(*engine);
    forward = cpu_forward.get();
  } else {
    MOE_ASSIGN_OR_RETURN(hybrid, HybridDevice::Create(config, **weights, *kernels, workers, *pool,
                                                      loop_options.max_rows(), trace.get()));
    forward = &hybrid->forward();
    MOE_ASSIGN_OR_RETURN(lent_device, LentDevice::Lend(DecodeDevicePath(config.node)));
    loop_options.lent_device = lent_device.get();
  }
  leases = std::make_unique<LeaseTable>(*pool, config.reserve_ahead_tokens);
  loop = std::make_unique<DecodeLoop>(*forward, *pool, *leases, metrics, loop_options);
  rpc.Serve(pool.get(), leases.get(), loop.get(), (*weights)->header().fingerprint);
  server->SetServing(true);
  spdlog::info("ready: {} kernels, {} threads on CPUs {} in {} NUMA domains (weights placed for {}), batch up to {}",
               kernels->isa, workers.threads(), FormatCpuList(AllowedCpus()), workers.domains(),
               (*weights)->numa_domains(), config.max_batch);

  // The clock tick: leases that nobody started, pages of dead writers, gauges.
  constexpr std::chrono::milliseconds kTick(50);
  absl::Status failure;
  while (!termination.WaitFor(kTick)) {
    failure = loop->failure();
    if (!failure.ok()) break;
    metrics.lease_timeouts.Increment(rpc.ExpireLeases());
    pool->Sweep();
    metrics.Update(pool->stats(), *leases);
    if (hybrid != nullptr) {
      metrics.UpdateDevice(hybrid->forward().overlapped_steps(), hybrid->expert_hits(), hybrid->expert_misses());
    }
    if (const auto bytes = ReadAnonymousBytes(); bytes.ok()) {
      metrics.private_bytes.Set(static_cast<double>(*bytes));
    }
  }
  if (failure.ok()) {
    spdlog::info("terminating: running requests may finish within {} s", config.node.drain_seconds);
    server->Drain(std::chrono::seconds(config.node.drain_seconds));
  } else {
    server->Drain(kFailureGrace);
  }
  loop.reset();
  return failure;
}

}  // namespace moestro
