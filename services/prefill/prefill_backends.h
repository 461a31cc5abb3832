// The devices that --device or --devices names, and the prefill that streams prompts through them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/proportional_parts.h"
#include "common/device/device.h"
#include "common/device/device_name.h"
#include "common/device/pinning.h"
#include "common/inference/prompt_costs.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"
#include "common/weights/segment.h"
#include "services/prefill/config.h"
#include "services/prefill/device_exchange.h"
#include "services/prefill/multi_device_prefill.h"
#include "services/prefill/stream/measure.h"
#include "services/prefill/stream/stream_prefill.h"

namespace moestro::prefill {

class PrefillBackends {
 public:
  // Seconds from a try to open the devices that are missing to the next.
  static constexpr double kRetrySeconds = 30;

  // Null if the settings name no device. Opens those that it can; the log gives the reason for the others. Errors come
  // from the weights, and from --device-exchange if these devices cannot do what it demands. Kernels and workers must
  // outlive this object. A rank that hangs keeps the segment.
  static absl::StatusOr<std::unique_ptr<PrefillBackends>> Create(const PrefillConfig& config,
                                                                 std::shared_ptr<const weights::WeightSegment> segment,
                                                                 const CpuKernels& kernels, WorkerPool& workers);
  ~PrefillBackends();

  // What streams prompts; null: no device can. Valid until BetweenPrompts.
  PromptPrefill* prefill();
  // What streamed prompts take: on the role's own devices, and with a borrowed one. Measured on the first of the open
  // ones; none: nothing. GPUs of other kinds are measured, too, also for the devices' shares of the next prompts unless
  // the settings name these. REQUIRES: no prompt runs. Errors are those of a streamed run.
  absl::StatusOr<std::vector<PromptCost>> MeasureCosts();
  // Retries refused registrations, and devices that could not be opened: their memory may be free by now. `now`:
  // SteadySeconds.
  void BetweenPrompts(double now);

  // Thread-safe.
  struct State {
    int64_t devices = 0;           // that the settings name
    int64_t open = 0;              // of these
    int64_t ring_slots = 0;        // experts of a layer that a device holds at a time; 0: nothing is streamed
    int64_t registered_bytes = 0;  // of the weights, with the device that has fewest
    bool fp8_inputs = false;       // whether a device rounds inputs of FP8 weights to FP8
    bool peers = false;            // whether devices that share a prompt copy from each other's memory
    struct Share {
      std::string device;
      int64_t share = 0;  // RankSetup's; 0: not open
    };
    std::vector<Share> shares = {};  // of all devices that the settings name
  };
  State state() const {
    MutexLock lock(mutex_);
    return state_;
  }

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
    bool fp8_inputs = false;
  };
  // A device that the settings name.
  struct Named {
    device::DeviceName name;
    std::optional<Device> opened = std::nullopt;
    int64_t share = 1;                        // RankSetup's
    absl::Status refused = absl::OkStatus();  // why it is not open, as the log has said
  };

  PrefillBackends(const PrefillConfig& config, const CpuKernels& kernels, WorkerPool& workers);
  // Opens what is missing and can be opened. Closes all if the shortest prompt to stream does not fit.
  void OpenMissing();
  absl::StatusOr<Device> Open(const device::DeviceName& name) const;
  // Of the device with this index in `named_`.
  absl::StatusOr<PromptDevice> Rank(size_t index);
  // Of the open devices. False if some cannot be ranks; it closes them.
  bool MakeGroup();
  // For messages, and for metrics.
  std::string NameOf(size_t index) const;
  std::vector<const Device*> opened() const;
  bool IsBorrowed(size_t index) const { return config_.stream.borrows() && index + 1 == named_.size(); }
  // The parts of the first so many open devices.
  ProportionalParts Parts(int64_t devices) const;
  // What layers take on each of the open devices, in their order: one of each kind is measured. times: of the first.
  absl::StatusOr<std::vector<roofline::LayerTimes>> MeasureOthers(const roofline::LayerTimes& times,
                                                                  const StreamMeasureOptions& options);
  // Cuts prompts by that; into equal parts if it is not known.
  void SetShares(const absl::StatusOr<std::vector<roofline::LayerTimes>>& times);
  // Tokens of the shortest prompt that is streamed; its form; whether a device has room for it.
  int64_t shortest() const;
  model::MlaForm ShortestForm(const StreamPrefill& prefill) const;
  absl::Status CheckShortest();
  int64_t RingSlots() const;
  void LogOpened() const;
  void LogRefused() const;
  // Logs how much is registered, and again whenever that changes.
  void PinWeights(Device& device) const;
  void UpdateState();

  const PrefillConfig config_;
  const CpuKernels& kernels_;
  WorkerPool& workers_;
  std::shared_ptr<Model> model_;
  std::vector<Named> named_;
  std::unique_ptr<MultiDevicePrefill> group_;                   // null: one device
  absl::StatusOr<ExchangeChoice> exchange_ = ExchangeChoice{};  // of the group; an error: through the host's memory
  int64_t ring_slots_ = 0;
  double retry_at_ = 0;  // SteadySeconds
  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::prefill
