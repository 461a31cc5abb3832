#include "services/prefill/distributed/rank_prefill.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "common/base/status.h"
#include "services/prefill/distributed/expert_exchange.h"
#include "services/prefill/distributed/rank_compute.h"

namespace moestro {
namespace {

// Slices of the head that fit into the memory for dense weights at once, as on one device.
constexpr int64_t kHeadSlices = 4;

// Its own experts only; the head only where rows want logits.
std::vector<Module> ModulesOf(const ModelSpec& spec, const ModelWeights& weights, const RankRun& run,
                              const MemoryLimits& limits) {
  std::vector<Module> modules = ListModules(spec, weights, run.form, limits.dense_bytes / kHeadSlices);
  const IndexRange own = RankExperts(spec, run.rank, run.ranks());
  const bool has_logits = std::ranges::any_of(run.rows, &EngineRow::wants_logits);
  std::erase_if(modules, [&](const Module& module) {
    if (module.kind == ModuleKind::kHead) return !has_logits;
    return module.kind == ModuleKind::kExpert && (module.index < own.begin || module.index >= own.end);
  });
  return modules;
}

std::unique_ptr<ExpertExchange> NewExchange(ExpertParallelism experts, const ModelSpec& spec, const RankSetup& setup,
                                            collective::Communicator& communicator) {
  return (experts == ExpertParallelism::kSmall ? NewSmallEp : NewStandardEp)(spec, *setup.device, communicator,
                                                                             *setup.kernels);
}

// All that a run of a rank consists of.
class RankPrefill {
 public:
  RankPrefill(const RankSetup& setup, const ModelSpec& spec, const ModelWeights& weights, ExpertParallelism experts,
              const RankRun& run, const MemoryLimits& limits, collective::Communicator& communicator)
      : device_(*setup.device),
        run_(run),
        limits_(limits),
        experts_(RankExperts(spec, run.rank, run.ranks()).size()),
        modules_(ModulesOf(spec, weights, run, limits)),
        exchange_(NewExchange(experts, spec, setup, communicator)),
        compute_(spec, device_, communicator, *setup.kernels, *exchange_) {
    compute_.SetShare(run);
  }

  absl::StatusOr<MemoryPlan> Plan() {
    MemoryLimits limits = limits_;
    const int64_t free = device_.memory_bytes() - device_.memory_used();
    limits.device_bytes = limits.device_bytes > 0 ? std::min(limits.device_bytes, free) : free;
    limits.min_pass_rows = std::numeric_limits<int64_t>::max();
    MOE_ASSIGN_OR_RETURN(const MemoryPlan plan,
                         PlanMemory(run_.own_rows(), experts_, SlotBytes(modules_), limits,
                                    [&](int64_t rows) { return compute_.ActivationBytes(rows); }));
    MOE_RETURN_IF_ERROR(Schedule(plan).status());
    return plan;
  }

  absl::Status Run(const RankCallbacks& callbacks, RankReport& report) {
    MOE_ASSIGN_OR_RETURN(report.plan, Plan());
    MOE_ASSIGN_OR_RETURN(const moestro::Schedule schedule, Schedule(report.plan));
    absl::Status status = compute_.Begin({});
    if (status.ok()) {
      status = RunPipeline(device_, schedule, compute_, callbacks.interrupted, callbacks.on_released, &report.pipeline);
    }
    if (status.ok()) status = compute_.Logits(callbacks.on_logits);
    compute_.End();
    return status;
  }

 private:
  absl::StatusOr<moestro::Schedule> Schedule(const MemoryPlan& plan) const {
    return MakeSchedule(modules_, {.ring_slots = plan.ring_slots,
                                   .dense_bytes = limits_.dense_bytes,
                                   .max_experts_together = limits_.max_experts_together,
                                   .exchanges = true});
  }

  device::Device& device_;
  const RankRun& run_;
  const MemoryLimits limits_;
  const int64_t experts_;
  const std::vector<Module> modules_;
  const std::unique_ptr<ExpertExchange> exchange_;
  RankCompute compute_;
};

// Everybody is done.
absl::Status Meet(device::Device& device, collective::Communicator& communicator) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream("barrier"));
  const std::atomic<bool> stopped = false;
  return communicator.Barrier({*stream, stopped});
}

}  // namespace

std::vector<EngineRow> RankRows(std::span<const EngineRow> rows, const ZigZagSplit& split, int rank) {
  std::vector<EngineRow> own;
  const auto stripes = split.Stripes(rank);
  for (int i = 0; i < ZigZagSplit::kStripes; ++i) {
    for (int64_t position = stripes[i].begin; position < stripes[i].end; ++position) {
      own.push_back(rows[static_cast<size_t>(position - split.begin())]);
      own.back().sequence = i;
    }
  }
  return own;
}

absl::Status RunRank(const RankSetup& setup, const ModelSpec& spec, const ModelWeights& weights,
                     ExpertParallelism experts, const RankRun& run, const MemoryLimits& limits,
                     collective::Communicator& communicator, const RankCallbacks& callbacks, RankReport* report) {
  RankPrefill prefill(setup, spec, weights, experts, run, limits, communicator);
  absl::Status status = prefill.Run(callbacks, *report);
  if (status.ok()) status = Meet(*setup.device, communicator);
  if (!status.ok()) communicator.Fail(status);
  for (int i = 0; i < collective::kOperations; ++i) {
    report->exchanges[i] = communicator.counters(static_cast<collective::Operation>(i));
  }
  return status;
}

}  // namespace moestro
