// The device that --device names, and what streams prompts through it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"
#include "common/weights/segment.h"
#include "services/prefill/config.h"
#include "services/prefill/stream/stream_prefill.h"
#include "services/prefill/stream/weight_pinning.h"

namespace moestro {

class StreamingDevice {
 public:
  // Null if prompts are not to be streamed, or cannot be: then the log says why, once. Errors are those of the weights.
  // Segment, kernels and workers outlive it.
  static absl::StatusOr<std::unique_ptr<StreamingDevice>> Create(const PrefillConfig& config,
                                                                 const WeightSegment& segment,
                                                                 const CpuKernels& kernels, WorkerPool& workers);

  StreamPrefill& prefill() { return *prefill_; }

 private:
  StreamingDevice() = default;
  // Device and compute.
  absl::Status Open(const PrefillConfig& config, const WeightSegment& segment, const CpuKernels& kernels,
                    WorkerPool& workers);

  ModelWeights weights_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<WeightPinning> pinning_;
  std::unique_ptr<StreamCompute> compute_;
  std::unique_ptr<StreamPrefill> prefill_;
};

}  // namespace moestro
