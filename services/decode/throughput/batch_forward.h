// A step of a batch whose experts do not fit the device: "MoE-Lightning", section 4.1. Their weights come layer by
// layer, once for all micro-batches; the host attends to the cache where it lies. Several devices share every expert
// (section 4.3): each loads its rows over its own link, and multiplies with these. The first one does all the rest.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/device/device.h"
#include "common/device/pinned_buffer.h"
#include "common/device/staging.h"
#include "common/engine/batch_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"
#include "services/decode/forward_pass.h"
#include "services/decode/throughput/cpu_attention.h"
#include "services/decode/throughput/pipeline.h"
#include "services/decode/throughput/request_batching.h"
#include "services/decode/throughput/step_costs.h"
#include "services/decode/throughput/task_list.h"
#include "services/decode/throughput/weight_pages.h"

namespace moestro::decode {

// Totals over steps.
struct BatchCounts {
  int64_t steps = 0;
  int64_t micro_batches = 0;
  double seconds = 0;
  double forecast_seconds = 0;
  std::array<double, kResources> busy_seconds = {};
  int64_t streamed_bytes = 0;  // of weights
};

class BatchForward final : public ForwardPass {
 public:
  struct Options {
    int64_t max_rows = 0;
    BatchSchedule schedule = BatchSchedule::kCgoPipe;
    int64_t memory_bytes = 0;  // of each device, for all that the steps hand over and for routed experts
  };
  // Makes what computes on the device, with weights of which the routed experts are there.
  using MakeCompute = std::function<absl::StatusOr<std::unique_ptr<engine::BatchCompute>>(const model::ModelWeights&)>;

  // All but the options must outlive it. Several devices wait for each other's events. RESOURCE_EXHAUSTED names what
  // does not fit into memory_bytes; INVALID_ARGUMENT: more devices than an expert has groups of rows.
  static absl::StatusOr<std::unique_ptr<BatchForward>> Create(const weights::ModelSpec& spec,
                                                              const model::ModelWeights& weights,
                                                              const CpuKernels& kernels, WorkerPool& workers,
                                                              std::span<device::Device* const> devices,
                                                              const MakeCompute& make_compute, const Options& options);

  const weights::ModelSpec& spec() const override { return spec_; }
  int64_t max_rows() const override { return options_.max_rows; }
  // The bits are the engine's, if the kernels are, whatever the schedule, the micro-batches and the experts that stay.
  absl::Status Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override;

  // Sequences of a micro-batch at most, from the next step; more where a step would have too many micro-batches.
  void set_micro_batch(int64_t sequences) { micro_batch_ = sequences; }
  // From the next step forecasts are made, and if `choose`, a step is cut so that it takes least by them.
  void set_costs(const StepCosts& costs, bool choose) {
    costs_ = costs;
    chooses_ = choose;
  }
  // Of a step of so many sequences, each of which sees so many tokens. REQUIRES: costs.
  StepForecast ForecastOf(int64_t sequences, int64_t tokens);

  BatchSchedule schedule() const { return options_.schedule; }
  // Tokens of a micro-batch whose cache the device has room for; a maximum where the host attends.
  int64_t cache_tokens() const;
  // Of the first device: the others have the same experts, and other rows of them.
  const WeightPages& pages() const { return shares_.front().pages; }
  // Weights that all links bring in a step.
  int64_t streamed_bytes() const;
  // All that it takes of a device, allocated at the start.
  int64_t device_bytes(size_t device = 0) const;
  // Of the last step.
  const StepTimes& times() const { return times_; }
  const StepForecast& forecast() const { return forecast_; }  // 0 seconds without costs
  // Of all steps with costs. Thread-safe.
  BatchCounts counts() const;
  const TaskList& tasks() const { return *list_; }

 private:
  class Work;
  // A device's share of the experts.
  struct Share {
    device::Device* device = nullptr;
    WeightPages pages;
    device::Memory resident = {};  // experts that stay
    device::Memory layers = {};    // two places, one behind the other
    // Of a device behind the first, whose copies the pipeline's stream does.
    std::unique_ptr<device::StagedStream> loads = {};
    std::unique_ptr<device::Event> loaded = {};  // a page
  };

  BatchForward(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
               WorkerPool& workers, const Options& options, std::vector<Share> shares,
               device::PinnedBuffer<uint8_t> host_io);
  static absl::StatusOr<std::vector<Share>> MakeShares(const weights::ModelSpec& spec,
                                                       const model::ModelWeights& weights,
                                                       std::span<device::Device* const> devices, int64_t first_bytes,
                                                       int64_t other_bytes);
  absl::Status Allocate(int64_t cache_bytes);
  absl::Status LoadResident();
  // New streams and events of the devices behind the first one.
  absl::Status MakeLoads();
  device::Stream& LoadsOf(size_t device) { return device == 0 ? pipeline_->load_stream() : *shares_[device].loads; }
  // After a failure: what it is to the caller.
  absl::Status Renew(const absl::Status& failure);
  // Routed experts of streamed layers lie in two places in turn, the first layer's in this one.
  void PlaceExperts(int64_t first_place);
  int64_t PlaceOf(int64_t layer) const;
  absl::Status CutIntoParts();
  // Micro-batches of micro_batch_ sequences.
  int64_t FixedParts(int64_t sequences) const;
  // Micro-batches with which a step of so many sequences takes least.
  int64_t BestParts(int64_t sequences, const BatchSize& step);
  void Count();
  std::vector<BatchSize> Sizes() const;
  std::shared_ptr<const TaskList> ListOf(int64_t micro_batches);
  kv::KvPages DevicePages(const kv::KvPages& pages, int64_t blocks, uint8_t* base, int64_t first) const;

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;  // on the host
  const Options options_;
  std::vector<Share> shares_;  // by device
  const device::PinnedBuffer<uint8_t> host_memory_;
  const engine::AttentionIo host_io_;
  // Of the first device.
  device::Memory io_;
  device::Memory caches_;  // two places, one behind the other
  std::unique_ptr<device::Event> page_begins_;
  engine::AttentionIo device_io_;
  int64_t cache_bytes_ = 0;  // of a place
  model::ModelWeights on_device_;
  int64_t first_place_ = 0;
  bool first_is_there_ = false;
  CpuAttention attention_;
  std::unique_ptr<engine::BatchCompute> compute_;
  std::unique_ptr<BatchPipeline> pipeline_;
  int64_t micro_batch_ = 1;
  std::optional<StepCosts> costs_;
  bool chooses_ = false;  // micro-batches, by the costs
  // Lists that steps had, by micro-batches, and whether the first layer is there.
  std::map<std::pair<int64_t, bool>, std::shared_ptr<const TaskList>> lists_;

  // Of the step.
  model::CheckedBatch batch_;
  std::vector<model::EngineRow> rows_;  // micro-batch by micro-batch
  std::vector<int64_t> places_;         // of the batch's rows in these
  std::vector<engine::MicroBatch> micro_batches_;
  std::vector<uint32_t> page_numbers_;  // of a place: 0, 1, 2, ...
  // Of each sequence, where the device attends, in even and in odd layers. A micro-batch's caches have one of two
  // places, which all micro-batches of all layers take in turn.
  std::array<std::vector<kv::KvPages>, 2> device_caches_;
  std::shared_ptr<const TaskList> list_;
  StepTimes times_;
  StepForecast forecast_;

  mutable Mutex mutex_;
  BatchCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::decode
