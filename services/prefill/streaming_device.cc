#include "services/prefill/streaming_device.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/device/host/host_device.h"
#include "services/prefill/stream/cuda/backend.h"
#include "services/prefill/stream/host_compute.h"

namespace moestro {
namespace {

constexpr int64_t kDefaultHostBytes = int64_t{4} << 30;

MemoryLimits LimitsOf(const StreamConfig& config) {
  return {.device_bytes = config.memory_bytes,
          .dense_bytes = config.dense_bytes,
          .ring_slots = config.ring_slots,
          .min_pass_rows = config.min_pass_tokens};
}

}  // namespace

absl::Status StreamingDevice::Open(const PrefillConfig& config, const WeightSegment& segment, const CpuKernels& kernels,
                                   WorkerPool& workers) {
  const int64_t bytes = config.stream.memory_bytes;
  if (const std::optional<int> ordinal = config.stream.cuda_ordinal()) {
    MOE_ASSIGN_OR_RETURN(CudaBackend backend,
                         OpenCudaBackend({.ordinal = *ordinal, .memory_bytes = bytes}, segment.spec(), weights_));
    device_ = std::move(backend.device);
    compute_ = std::move(backend.compute);
    return absl::OkStatus();
  }
  device_ = device::NewHostDevice({.memory_bytes = bytes > 0 ? bytes : kDefaultHostBytes});
  compute_ = std::make_unique<HostCompute>(segment.spec(), weights_, kernels, workers, config.chunk_tokens);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StreamingDevice>> StreamingDevice::Create(const PrefillConfig& config,
                                                                         const WeightSegment& segment,
                                                                         const CpuKernels& kernels,
                                                                         WorkerPool& workers) {
  if (config.stream.device == "none") return nullptr;
  std::unique_ptr<StreamingDevice> streaming(new StreamingDevice());
  MOE_ASSIGN_OR_RETURN(streaming->weights_, BindWeights(segment));
  const auto computed_without = [&](const absl::Status& status) {
    spdlog::warn("--device {} is not used, all prompts are computed where the weights lie: {}", config.stream.device,
                 std::string(status.message()));
    return nullptr;
  };
  if (const absl::Status status = streaming->Open(config, segment, kernels, workers); !status.ok()) {
    return computed_without(status);
  }
  device::Device& device = *streaming->device_;
  streaming->prefill_ = std::make_unique<StreamPrefill>(device, segment.spec(), streaming->weights_,
                                                        *streaming->compute_, LimitsOf(config.stream));
  const int64_t longest = segment.spec().max_position_embeddings;
  const int64_t shortest = std::min(config.stream.from_tokens, longest);
  const auto plan = streaming->prefill_->Plan(shortest, config.mla_form.ForPrompt(shortest));
  if (!plan.ok()) return computed_without(plan.status());
  spdlog::info("prompts of {} tokens and more stream through {} with {} bytes: {} of {} experts of a layer fit",
               config.stream.from_tokens, device.name(), device.memory_bytes(), plan->ring_slots,
               segment.spec().num_experts);
  const int64_t bytes = segment.header().total_bytes;
  streaming->pinning_ = std::make_unique<WeightPinning>(
      device, reinterpret_cast<const uint8_t*>(&segment.header()), bytes, config.stream.pin_bytes,
      [bytes](int64_t pinned, const absl::Status& status) {
        if (status.ok()) return spdlog::info("{} of {} bytes of weights are registered for copies", pinned, bytes);
        spdlog::warn("{} of {} bytes of weights are registered for copies, the others are copied more slowly: {}",
                     pinned, bytes, std::string(status.message()));
      });
  return streaming;
}

}  // namespace moestro
