#include "services/prefill/distributed/rank_prefill.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "services/prefill/distributed/expert_exchange.h"
#include "services/prefill/distributed/rank_compute.h"

namespace moestro::prefill {
namespace {

// Slices of the head that fit into the memory for dense weights at once, as on one device.
constexpr int64_t kHeadSlices = 4;

// Its own experts only; the head only where rows want logits.
std::vector<engine::Module> ModulesOf(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                                      const RankRun& run, const MemoryLimits& limits) {
  std::vector<engine::Module> modules = engine::ListModules(spec, weights, run.form, limits.dense_bytes / kHeadSlices);
  modules = engine::ModulesFrom(run.first_layer, std::move(modules));
  const IndexRange own = run.experts(spec);
  const bool has_logits = std::ranges::any_of(run.rows, &model::EngineRow::needs_logits);
  std::erase_if(modules, [&](const engine::Module& module) {
    if (module.kind == engine::ModuleKind::kHead) return !has_logits;
    return module.kind == engine::ModuleKind::kExpert && (module.index < own.begin || module.index >= own.end);
  });
  return modules;
}

std::unique_ptr<ExpertExchange> NewExchange(roofline::ExpertParallelism experts, const weights::ModelSpec& spec,
                                            const RankSetup& setup, collective::Communicator& communicator,
                                            Exchanges& exchanges) {
  return (experts == roofline::ExpertParallelism::kSmall ? NewSmallEp : NewStandardEp)(
      spec, *setup.device, communicator, *setup.kernels, exchanges);
}

absl::StatusOr<Schedule> MakeRankSchedule(const std::vector<engine::Module>& modules, const MemoryLimits& limits,
                                          const MemoryPlan& plan) {
  return MakeSchedule(modules, {.ring_slots = plan.ring_slots,
                                .dense_bytes = limits.dense_bytes,
                                .max_experts_together = limits.max_experts_together,
                                .exchanges = true});
}

absl::StatusOr<MemoryPlan> PlanWith(const std::vector<engine::Module>& modules, const RankSetup& setup,
                                    const weights::ModelSpec& spec, roofline::ExpertParallelism experts,
                                    const RankRun& run, const MemoryLimits& limits) {
  MemoryLimits own = limits;
  const int64_t free = setup.device->memory_free();
  own.device_bytes = limits.device_bytes > 0 ? std::min(limits.device_bytes, free) : free;
  own.min_pass_rows = std::numeric_limits<int64_t>::max();
  MOE_ASSIGN_OR_RETURN(const MemoryPlan plan,
                       PlanMemory(run.own_rows(), run.experts(spec).size(), SlotBytes(modules), own,
                                  [&](int64_t) { return RankBytes(spec, *setup.kernels, experts, run); }));
  MOE_RETURN_IF_ERROR(MakeRankSchedule(modules, limits, plan).status());
  return plan;
}

// Of exchanges with other ranks, and not of copies between the device and its host.
double SecondsBetweenRanks(const std::vector<Span>& exchanges) {
  double seconds = 0;
  for (const Span& span : exchanges) seconds += span.bytes > 0 ? span.end - span.begin : 0;
  return seconds;
}

// The rank's part, without telling the others how it ended.
absl::Status RunPart(const RankSetup& setup, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                     roofline::ExpertParallelism experts, const RankRun& run, const MemoryLimits& limits,
                     collective::Communicator& communicator, const RankCallbacks& callbacks, RankReport& report) {
  const std::vector<engine::Module> modules = ModulesOf(spec, weights, run, limits);
  MOE_ASSIGN_OR_RETURN(report.plan, PlanWith(modules, setup, spec, experts, run, limits));
  MOE_ASSIGN_OR_RETURN(const Schedule schedule, MakeRankSchedule(modules, limits, report.plan));
  Exchanges exchanges(*setup.device, communicator);
  const std::unique_ptr<ExpertExchange> exchange = NewExchange(experts, spec, setup, communicator, exchanges);
  RankCompute compute(spec, *setup.device, communicator, *setup.kernels, *exchange, exchanges);
  const absl::Status status = CatchExceptions([&]() -> absl::Status {
    RankRun with_spare = run;
    // Standard EP may need more than was planned for its pairs.
    if (experts == roofline::ExpertParallelism::kSmall) with_spare.spare_bytes = report.plan.spare_bytes;
    MOE_RETURN_IF_ERROR(compute.Begin(with_spare));
    MOE_RETURN_IF_ERROR(RunPipeline(*setup.device, schedule, compute, callbacks.interrupted, callbacks.on_released,
                                    &report.pipeline, callbacks.ends_before));
    if (report.pipeline.ended_early) {
      MOE_ASSIGN_OR_RETURN(report.residuals, compute.Residuals());
      return absl::OkStatus();
    }
    return compute.Logits(callbacks.on_logits);
  });
  compute.End();
  report.pipeline.timeline.lanes[Timeline::kExchanges] = exchanges.spans();
  report.pipeline.timeline.lanes[Timeline::kExchangeWaits] = exchanges.waits();
  StreamCounters& counters = report.pipeline.counters;
  counters.exchange_seconds = SecondsBetweenRanks(exchanges.spans());
  counters.exchange_wait_seconds = SecondsBetweenRanks(exchanges.waits());
  return status;
}

// Everybody is done.
absl::Status Meet(device::Device& device, collective::Communicator& communicator) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream("barrier"));
  const std::atomic<bool> stopped = false;
  return communicator.Barrier({*stream, stopped});
}

}  // namespace

std::vector<model::EngineRow> RankRows(std::span<const model::EngineRow> rows, const ZigZagSplit& split, int rank) {
  std::vector<model::EngineRow> own;
  const auto stripes = split.Stripes(rank);
  for (int i = 0; i < ZigZagSplit::kStripes; ++i) {
    for (int64_t position = stripes[i].begin; position < stripes[i].end; ++position) {
      own.push_back(rows[static_cast<size_t>(position - split.begin())]);
      own.back().sequence = i;
    }
  }
  return own;
}

absl::StatusOr<MemoryPlan> PlanRank(const RankSetup& setup, const weights::ModelSpec& spec,
                                    const model::ModelWeights& weights, roofline::ExpertParallelism experts,
                                    const RankRun& run, const MemoryLimits& limits) {
  return PlanWith(ModulesOf(spec, weights, run, limits), setup, spec, experts, run, limits);
}

absl::Status RunRank(const RankSetup& setup, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                     roofline::ExpertParallelism experts, const RankRun& run, const MemoryLimits& limits,
                     collective::Communicator& communicator, const RankCallbacks& callbacks, RankReport* report) {
  const absl::Status status = CatchExceptions([&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(RunPart(setup, spec, weights, experts, run, limits, communicator, callbacks, *report));
    return Meet(*setup.device, communicator);
  });
  if (!status.ok()) communicator.Fail(status);
  for (int i = 0; i < collective::kOperations; ++i) {
    report->exchanges[i] = communicator.counters(static_cast<collective::Operation>(i));
  }
  return status;
}

}  // namespace moestro::prefill
