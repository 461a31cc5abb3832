#include "services/prefill/streaming_device.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/device/host/host_device.h"
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

absl::StatusOr<std::unique_ptr<StreamingDevice>> StreamingDevice::Create(const PrefillConfig& config,
                                                                         const WeightSegment& segment,
                                                                         const CpuKernels& kernels,
                                                                         WorkerPool& workers) {
  if (config.stream.device == "none") return nullptr;
  std::unique_ptr<StreamingDevice> streaming(new StreamingDevice());
  MOE_ASSIGN_OR_RETURN(streaming->weights_, BindWeights(segment));
  const int64_t bytes = config.stream.memory_bytes > 0 ? config.stream.memory_bytes : kDefaultHostBytes;
  streaming->device_ = device::NewHostDevice({.memory_bytes = bytes});
  streaming->compute_ =
      std::make_unique<HostCompute>(segment.spec(), streaming->weights_, kernels, workers, config.chunk_tokens);
  streaming->prefill_ = std::make_unique<StreamPrefill>(*streaming->device_, segment.spec(), streaming->weights_,
                                                        *streaming->compute_, LimitsOf(config.stream));
  const int64_t longest = segment.spec().max_position_embeddings;
  const int64_t shortest = std::min(config.stream.from_tokens, longest);
  const MlaForm form = config.mla_form.ForPrompt(shortest);
  const auto plan = streaming->prefill_->Plan(shortest, form);
  if (!plan.ok()) {
    spdlog::warn("--device {}: too small, all prompts are computed where the weights lie: {}", config.stream.device,
                 std::string(plan.status().message()));
    return nullptr;
  }
  spdlog::info("prompts of {} tokens and more stream through device {} with {} bytes: {} of {} experts of a layer fit",
               config.stream.from_tokens, streaming->device_->name(), bytes, plan->ring_slots,
               segment.spec().num_experts);
  return streaming;
}

}  // namespace moestro
