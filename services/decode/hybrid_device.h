// The device that --device names, and the forward pass on it and the CPU workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinning.h"
#include "common/kernels/cpu/kernels.h"
#include "common/kv/pool.h"
#include "common/model/binding.h"
#include "common/model/routing_recorder.h"
#include "common/platform/worker_pool.h"
#include "common/weights/segment.h"
#include "services/decode/config.h"
#include "services/decode/overlap/cost_model.h"
#include "services/decode/overlap/domain_experts.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "services/decode/overlap/scheduled_experts.h"

namespace moestro::decode {

class HybridDevice {
 public:
  // REQUIRES: config.device is not none. Measures the cost of steps and logs how they will be cut. Errors come from the
  // weights or the device. `room`: what steps may hold at most. All other arguments must outlive this object;
  // `recorder` may be null.
  static absl::StatusOr<std::unique_ptr<HybridDevice>> Create(const DecodeConfig& config,
                                                              const weights::WeightSegment& segment,
                                                              const CpuKernels& kernels, WorkerPool& workers,
                                                              const kv::KvPool& pool, const StepLimits& room,
                                                              model::RoutingRecorder* recorder);

  HybridForward& forward() { return *forward_; }
  // Of the experts of steps; 0 without an expert cache. Thread-safe.
  ExpertCounts expert_counts() const {
    return scheduled_ != nullptr ? scheduled_->counts() : domains_ != nullptr ? domains_->counts() : ExpertCounts();
  }
  // Retries the registrations that were refused. Called from time to time, by any thread.
  void RetryPinning();

 private:
  HybridDevice() = default;
  // Opens the device and the objects that compute on it.
  absl::Status Open(const DecodeConfig& config, const weights::WeightSegment& segment, const CpuKernels& kernels,
                    const WorkerPool& workers, const kv::KvPool& pool, const StepLimits& room);
  // Experts on the device, as --expert-cache-bytes and --expert-schedule say.
  absl::Status ScheduleExperts(const DecodeConfig& config, const weights::ModelSpec& spec, const CpuKernels& kernels,
                               WorkerPool& workers, const StepLimits& room);
  // The same with --near-units.
  absl::Status DivideExperts(const DecodeConfig& config, const weights::ModelSpec& spec, const CpuKernels& kernels,
                             WorkerPool& workers, int64_t max_rows);
  void LogCosts(const experts::ExpertCosts& costs, const std::string& flags, int64_t held, int64_t all) const;
  // Where --overlap cuts a step.
  size_t Split(const model::CheckedBatch& batch) const;
  void LogChoice(int max_batch) const;

  Overlap overlap_ = Overlap::kAuto;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Pinning> page_pinning_;    // of the KV pool, for a GPU
  std::unique_ptr<device::Pinning> expert_pinning_;  // of the weights, with --expert-cache-bytes
  model::ModelWeights weights_;
  std::unique_ptr<engine::DecodeCompute> compute_;
  std::unique_ptr<CpuExperts> experts_;
  // With --expert-cache-bytes one of these.
  std::unique_ptr<ScheduledExperts> scheduled_;
  std::unique_ptr<DomainExperts> domains_;  // with --near-units
  std::unique_ptr<HybridForward> forward_;
  std::unique_ptr<CostModel> costs_;
};

}  // namespace moestro::decode
