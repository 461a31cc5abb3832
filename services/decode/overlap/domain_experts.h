// Routed experts on a device, on the CPU and on processors near the data, each pass as a scheduler of three domains has
// it, after experts have moved to where the foreseen loads want them (TriMoE, section 4).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/engine/decode_compute.h"
#include "common/experts/domains/domain_planner.h"
#include "common/experts/expert_costs.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/device_experts.h"
#include "services/decode/overlap/expert_counts.h"
#include "services/decode/overlap/expert_outputs.h"
#include "services/decode/overlap/near_experts.h"

namespace moestro::decode {

// The host adds all outputs in ascending id: the bits are those of the CPU alone, wherever experts lie and are
// computed. On this machine all DIMMs are one memory, so only what goes to the device is copied; other migrations
// change where an expert may be computed.
class DomainExperts final : public engine::RoutedExperts {
 public:
  struct Options {
    experts::DomainSchedule schedule = experts::DomainSchedule::kTriDomain;
    bool prefetch = true;
    bool relayout = true;
    int64_t budget_bytes = 0;          // of device memory for experts
    int64_t most_loads = 1;            // of a pass, for experts that the device computes and does not hold
    int64_t near_units = 1;            // 1 to experts::kMostDimms
    double near_bytes_per_second = 0;  // that each reads; 0: as fast as it can
    int64_t max_rows = 0;              // passes with more rows use the CPU alone
  };
  // As ScheduledExperts::Create.
  static absl::StatusOr<std::unique_ptr<DomainExperts>> Create(const weights::ModelSpec& spec,
                                                               const model::ModelWeights& weights,
                                                               const CpuKernels& kernels, WorkerPool& pool,
                                                               CpuExperts& cpu, engine::DecodeCompute& compute,
                                                               device::Device& device, const Options& options);

  absl::Status Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) override;

  // Between passes: measures what experts take here (measure_experts.h) and plans with it from now on. Experts lie as
  // at the start afterwards, and the counts are 0.
  absl::Status MeasureCosts(const device::Device& device);
  void SetCosts(const experts::ExpertCosts& costs);
  const experts::ExpertCosts& costs() const { return costs_; }
  int64_t held_experts() const { return slots_ * spec_.num_moe_layers(); }  // at most, in all layers
  ExpertCounts counts() const { return totals_.Get(); }

 private:
  DomainExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
                WorkerPool& pool, CpuExperts& cpu, const device::Device& device, const Options& options, int64_t slots);
  // Experts lie as at the start.
  void PlaceAnew();
  // Lays a layer's experts out when enough of its passes have been seen.
  absl::Status Profile(int64_t layer, ExpertCounts& counts);
  absl::Status RunPlanned(int64_t layer, const experts::DomainPlanner::Pass& pass, const engine::ExpertIo& rows,
                          ExpertCounts& counts);
  // Gives every expert of the pass to its group, lists what the device does, and counts.
  void Divide(int64_t moe_layer, const experts::DomainPlanner::Pass& pass, ExpertCounts& counts);
  // Where a slot of a layer is in device memory. Those for loads lie behind all others.
  int64_t DeviceSlot(int64_t moe_layer, int64_t slot) const { return moe_layer * slots_ + slot; }

  const weights::ModelSpec& spec_;
  CpuExperts& cpu_;
  const device::Device& device_;
  const Options options_;
  const int64_t slots_;  // of each layer
  const int64_t expert_bytes_;
  std::unique_ptr<experts::DomainPlanner> planner_;
  experts::ExpertCosts costs_;
  std::vector<std::vector<std::vector<int32_t>>> profiles_;  // [layers, passes, experts]: rows of the first passes
  std::unique_ptr<DeviceExperts> experts_;
  NearExperts near_;
  ExpertTotals totals_;
  // Of the pass.
  ExpertOutputs outputs_;
  std::vector<int32_t> row_counts_;  // by expert
  std::vector<DeviceExperts::Task> tasks_;
  std::vector<int32_t> loads_;  // experts that go to the device for the pass
  std::vector<NearExperts::Work> near_work_;
};

}  // namespace moestro::decode
