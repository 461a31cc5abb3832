// Routed experts on the device and on the CPU, each pass as a scheduler has it: which the device computes, which are
// loaded for that or ahead of later layers, which the CPU computes (HybriMoE, section IV).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/engine/decode_compute.h"
#include "common/experts/expert_planner.h"
#include "common/model/moe/gate_reuse.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/device_experts.h"
#include "services/decode/overlap/expert_counts.h"
#include "services/decode/overlap/expert_outputs.h"

namespace moestro::decode {

// Every expert's outputs come to the host, which adds them in ascending id: the bits are those of the CPU alone, under
// every schedule, with any experts held.
class ScheduledExperts final : public engine::RoutedExperts {
 public:
  struct Options {
    experts::Schedule schedule = experts::Schedule::kFixed;
    experts::Policy policy = experts::Policy::kLru;
    int64_t budget_bytes = 0;     // of device memory for experts
    int64_t most_loads = 1;       // of a layer's pass; each has a slot beside those of experts that are kept
    int64_t prefetch_layers = 0;  // whose experts are foreseen, so that they may be loaded ahead; kMaxPredictedLayers
    int64_t max_rows = 0;         // passes with more rows use the CPU alone and leave the cache as it is
  };
  // All outlive it; `compute` has HotExperts for max_rows rows. RESOURCE_EXHAUSTED if the device has not so much
  // memory; INVALID_ARGUMENT if the budget does not pay for an expert of every layer, or for a whole first layer.
  static absl::StatusOr<std::unique_ptr<ScheduledExperts>> Create(const weights::ModelSpec& spec,
                                                                  const model::ModelWeights& weights,
                                                                  const CpuKernels& kernels, WorkerPool& pool,
                                                                  CpuExperts& cpu, engine::DecodeCompute& compute,
                                                                  device::Device& device, const Options& options);

  absl::Status Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) override;

  // Between passes: measures what experts take here (measure_experts.h) and plans with it from now on. The cache is
  // empty afterwards, and the counts are 0.
  absl::Status MeasureCosts(const device::Device& device);
  const experts::ExpertCosts& costs() const { return planner_.costs(); }
  void SetCosts(const experts::ExpertCosts& costs) { planner_.SetCosts(costs); }
  // The same without the measurement.
  void Forget();

  int64_t held_experts() const { return planner_.kept(); }  // at most, in all layers
  ExpertCounts counts() const { return totals_.Get(); }

 private:
  ScheduledExperts(const weights::ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool, CpuExperts& cpu,
                   const device::Device& device, const Options& options, int64_t slots);
  absl::Status CreateSlots(const model::ModelWeights& weights, engine::DecodeCompute& compute, device::Device& device);
  // What routers say of the pass beside the choices, as far as the planner asks for it.
  experts::PassRouting RoutingOf(int64_t layer, int64_t count, const engine::ExpertIo& rows);
  absl::Status Load(std::span<const experts::ExpertPlanner::Load> loads);
  absl::Status RunPlanned(int64_t layer, int64_t count, const experts::ExpertPlanner::Pass& pass,
                          const engine::ExpertIo& rows);
  // Sorts the pass's rows: outputs of the CPU's experts come first, then the device's, in the plan's order.
  void Arrange(const experts::ExpertPlanner::Pass& pass, int64_t count, const engine::ExpertIo& rows);
  absl::Status Launch(const experts::ExpertPlanner::Pass& pass);

  const weights::ModelSpec& spec_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  CpuExperts& cpu_;
  const device::Device& device_;
  const Options options_;
  experts::ExpertPlanner planner_;
  std::unique_ptr<DeviceExperts> experts_;
  std::span<const experts::ExpertPlanner::Load> first_;  // to be loaded before the next pass
  std::unique_ptr<model::GateReuse> gates_;              // if the planner asks for what it says
  // Of the pass.
  std::vector<model::ExpertChoice> others_;
  std::vector<model::ExpertChoice> foreseen_choices_;  // [rows, experts_per_token]
  std::vector<std::vector<int32_t>> foreseen_;         // by layers ahead
  ExpertOutputs outputs_;
  std::vector<DeviceExperts::Task> tasks_;
  ExpertTotals totals_;
};

}  // namespace moestro::decode
