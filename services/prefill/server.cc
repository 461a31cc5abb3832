#include "services/prefill/server.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>

#include "common/base/status.h"
#include "common/kernels/dispatch.h"
#include "common/model/engine.h"
#include "common/platform/cpu_list.h"
#include "common/platform/numa.h"
#include "common/platform/process_memory.h"
#include "common/platform/worker_pool.h"
#include "common/rpc/process.h"
#include "common/rpc/server.h"
#include "common/rpc/weight_client.h"
#include "common/telemetry/metrics.h"
#include "services/prefill/metrics.h"
#include "services/prefill/prefill_rpc.h"
#include "services/prefill/prefill_runner.h"
#include "services/prefill/streaming_devices.h"

namespace moestro {

absl::Status RunPrefillServer(const PrefillConfig& config, TerminationSignal& termination) {
  MOE_ASSIGN_OR_RETURN(const CpuKernels* kernels, SelectKernels());
  MetricsRegistry registry("prefill");
  PrefillMetrics metrics(registry);
  if (!config.node.metrics_address.empty()) MOE_RETURN_IF_ERROR(registry.Serve(config.node.metrics_address));

  PrefillRpc rpc(metrics, static_cast<size_t>(config.queue_limit));
  MOE_ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start({RoleAddress(config.node, "prefill")}, {{v1::Prefill::service_full_name(), &rpc}}));

  WeightClient weight_client(RoleAddress(config.node, "weight_store"), "prefill");
  const auto stop = [&] { return termination.WaitFor(std::chrono::milliseconds(0)); };
  absl::StatusOr<std::unique_ptr<const WeightSegment>> attached = weight_client.Attach(stop);
  if (absl::IsCancelled(attached.status())) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(attached);
  const std::shared_ptr<const WeightSegment> weights = *std::move(attached);
  registry.SetModelName(weight_client.model_name());
  metrics.weights_attached.Set(static_cast<double>(weights->header().total_bytes));

  WorkerPool::Options pool_options = PoolOptions(config.cpu);
  if (config.cpu.threads == 0) pool_options.lent_cpus = config.lent_cpus;  // who names a number gets that number
  WorkerPool workers(pool_options);
  Engine::Options options;
  options.max_rows = config.chunk_tokens;
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(*weights, *kernels, workers, options));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<StreamingDevices> streaming,
                       StreamingDevices::Create(config, weights, *kernels, workers));
  PrefillRunner runner(*engine, workers, config.mla_form,
                       streaming == nullptr
                           ? StreamPath{}
                           : StreamPath{.prefill = &streaming->prefill(),
                                        .from_tokens = config.stream.from_tokens,
                                        .trace_file = config.stream.trace_file,
                                        .use_pool = [&](const auto& pool) { streaming->UsePool(pool); }});
  rpc.Serve(&runner, weights->header().fingerprint);
  server->SetServing(true);
  spdlog::info(
      "ready: {} kernels, {} threads on CPUs {} ({} for whole-machine prompts) in {} NUMA domains (weights "
      "placed for {}), chunks of {} tokens, MLA form {}",
      kernels->isa, workers.own_threads(), FormatCpuList(AllowedCpus()), workers.threads(), workers.domains(),
      weights->numa_domains(), config.chunk_tokens, config.mla_form.name);

  constexpr std::chrono::milliseconds kTick(250);
  while (!termination.WaitFor(kTick)) {
    metrics.waiting.Set(static_cast<double>(rpc.waiting()));
    if (const auto bytes = ReadAnonymousBytes(); bytes.ok()) {
      metrics.private_bytes.Set(static_cast<double>(*bytes));
    }
  }
  spdlog::info("terminating: running requests may finish within {} s", config.node.drain_seconds);
  server->Drain(std::chrono::seconds(config.node.drain_seconds));
  return absl::OkStatus();
}

}  // namespace moestro
