// The devices that --device or --devices names, and the prefill that streams prompts through them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/device/pinning.h"
#include "common/kernels/cpu/kernels.h"
#include "common/kv/lease_writer.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"
#include "common/weights/segment.h"
#include "services/prefill/config.h"
#include "services/prefill/multi_device_prefill.h"
#include "services/prefill/stream/stream_prefill.h"

namespace moestro::prefill {

class PrefillBackends {
 public:
  // Null if prompts are not streamed, or cannot be; in the second case the log gives the reason once. Errors come from
  // the weights. Kernels and workers must outlive this object. A rank that hangs keeps the segment.
  static absl::StatusOr<std::unique_ptr<PrefillBackends>> Create(const PrefillConfig& config,
                                                                 std::shared_ptr<const weights::WeightSegment> segment,
                                                                 const CpuKernels& kernels, WorkerPool& workers);

  PromptPrefill& prefill() { return group_ == nullptr ? static_cast<PromptPrefill&>(*devices_[0].prefill) : *group_; }
  // Sets the pool that prompts write from now on, or null. Prepares copies to it in the background. Call it between
  // prompts.
  void UsePool(const std::shared_ptr<const kv::KvPoolMapping>& pool);
  // Unmaps a pool whose owner has gone. Registered pages stay allocated when their name and contents are freed, and a
  // successor may need them. Also retries refused registrations.
  void BetweenPrompts();

 private:
  struct Model {
    std::shared_ptr<const weights::WeightSegment> segment;
    model::ModelWeights weights;
  };
  struct HostRank;
  struct CudaRank;
  struct Device {
    std::shared_ptr<device::Device> device;
    std::unique_ptr<engine::PrefillCompute> compute;
    std::unique_ptr<StreamPrefill> prefill;
    std::unique_ptr<device::Pinning> weights;  // registered
    std::unique_ptr<device::Pinning> pool;
  };

  PrefillBackends() = default;
  // Device and compute.
  absl::StatusOr<Device> Open(const PrefillConfig& config, const device::DeviceName& name, const CpuKernels& kernels,
                              WorkerPool& workers) const;
  absl::StatusOr<PromptDevice> Rank(const PrefillConfig& config, const device::DeviceName& name,
                                    const CpuKernels& kernels, const WorkerPool& workers, int64_t rank);
  void PinWeights(int64_t limit_bytes);

  std::shared_ptr<Model> model_;
  std::shared_ptr<const kv::KvPoolMapping> pool_;  // null: none yet
  std::vector<Device> devices_;
  std::unique_ptr<MultiDevicePrefill> group_;  // null: one device
};

}  // namespace moestro::prefill
