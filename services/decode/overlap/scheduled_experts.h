// Routed experts on the device and on the CPU, each pass as a scheduler has it: which the device computes, which are
// loaded for that, which the CPU computes (HybriMoE, section IV-B).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/engine/decode_compute.h"
#include "common/experts/expert_planner.h"
#include "common/model/moe/expert_plan.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/device_experts.h"

namespace moestro::decode {

// Totals over passes in layers. Thread-safe to read.
struct ExpertCounts {
  int64_t hits = 0;  // experts that passes took and that were held
  int64_t misses = 0;
  int64_t on_device = 0;  // of all, computed there
  int64_t loads = 0;
  double planned_seconds = 0;  // makespans
  double measured_seconds = 0;
};

// Every expert's outputs come to the host, which adds them in ascending id: the bits are those of the CPU alone, under
// every schedule, with any experts held.
class ScheduledExperts final : public engine::RoutedExperts {
 public:
  struct Options {
    experts::Schedule schedule = experts::Schedule::kFixed;
    int64_t budget_bytes = 0;  // of device memory for experts
    // Experts that a pass loads into a layer at most; each has a place beside those that stay. None in a layer split.
    int64_t most_loads = 1;
    int64_t max_rows = 0;  // passes with more rows use the CPU alone and leave the cache as it is
  };
  // All outlive it; `compute` has HotExperts for max_rows rows. RESOURCE_EXHAUSTED if the device has not so much
  // memory; INVALID_ARGUMENT if the budget does not pay for an expert of every layer, or for a layer to split.
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

  int64_t held_experts() const { return held_; }  // at most, in all layers
  ExpertCounts counts() const;

 private:
  ScheduledExperts(const weights::ModelSpec& spec, const CpuKernels& kernels, WorkerPool& pool, CpuExperts& cpu,
                   const device::Device& device, const Options& options, int64_t slots);
  absl::Status CreatePlaces(const model::ModelWeights& weights, engine::DecodeCompute& compute, device::Device& device);
  // Loads the experts of a layer split, once.
  absl::Status Fill();
  absl::Status RunPlanned(int64_t layer, int64_t count, const experts::ExpertPlanner::Pass& pass,
                          const engine::ExpertIo& rows);
  // Sorts the pass's rows: outputs of the CPU's experts come first, then the device's, in the plan's order.
  void Arrange(int64_t layer, const experts::ExpertPlanner::Pass& pass, int64_t count, const engine::ExpertIo& rows);
  absl::Status Launch(int64_t layer, const experts::ExpertPlanner::Pass& pass);
  void Add(int64_t count, const engine::ExpertIo& rows);
  int64_t& PlaceOf(int64_t layer, int64_t slot);

  const weights::ModelSpec& spec_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  CpuExperts& cpu_;
  const device::Device& device_;
  const Options options_;
  experts::ExpertPlanner planner_;
  int64_t held_ = 0;
  std::unique_ptr<DeviceExperts> experts_;
  bool is_filled_ = false;
  std::vector<int64_t> first_slot_;  // by layer with experts
  std::vector<int64_t> place_of_;    // by slot of all layers
  std::vector<int64_t> spare_;       // places for loads
  // Of the pass.
  model::ExpertPlan plan_;
  model::ExpertPlan host_plan_;
  std::vector<DeviceExperts::Task> tasks_;
  int64_t device_rows_ = 0;
  int64_t first_device_output_ = 0;
  std::vector<int64_t> first_output_;  // by expert of plan_
  std::vector<int64_t> output_of_;     // [rows, experts_per_token]: where the output of a row's choice is
  std::vector<int32_t> next_;          // of a row's choices, while they are walked
  // Totals.
  std::atomic<int64_t> hits_ = 0;
  std::atomic<int64_t> misses_ = 0;
  std::atomic<int64_t> on_device_ = 0;
  std::atomic<int64_t> loads_ = 0;
  std::atomic<double> planned_seconds_ = 0;
  std::atomic<double> measured_seconds_ = 0;
};

}  // namespace moestro::decode
