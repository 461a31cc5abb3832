// The device of --mode throughput, and the forward pass on it and the CPU workers.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinning.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"
#include "common/weights/segment.h"
#include "services/decode/config.h"
#include "services/decode/throughput/batch_forward.h"

namespace moestro::decode {

class BatchDevice {
 public:
  // REQUIRES: config.device is not none. Runs a few steps to learn what their parts take, which may take a minute, and
  // logs how steps will be cut. INVALID_ARGUMENT names what does not fit into --device-memory. All arguments must
  // outlive this object.
  static absl::StatusOr<std::unique_ptr<BatchDevice>> Create(const DecodeConfig& config,
                                                             const weights::WeightSegment& segment,
                                                             const CpuKernels& kernels, WorkerPool& workers,
                                                             int64_t max_rows);

  BatchForward& forward() { return *forward_; }
  // Retries the registrations that were refused. Called from time to time, by any thread.
  void RetryPinning() {
    if (pinning_ != nullptr) pinning_->Retry();
  }

 private:
  BatchDevice() = default;
  absl::Status Open(const DecodeConfig& config, const weights::WeightSegment& segment, const CpuKernels& kernels,
                    WorkerPool& workers, int64_t max_rows);
  absl::Status Measure(const DecodeConfig& config);

  std::vector<std::unique_ptr<device::Device>> devices_;
  std::unique_ptr<device::Pinning> pinning_;  // of the weights, for a GPU
  model::ModelWeights weights_;
  std::unique_ptr<BatchForward> forward_;
};

}  // namespace moestro::decode
