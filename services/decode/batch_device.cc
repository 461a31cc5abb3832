#include "services/decode/batch_device.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/device/host/host_device.h"
#include "common/engine/cuda/backend.h"
#include "common/engine/host/host_batch.h"
#include "common/telemetry/log.h"
#include "services/decode/logged_pinning.h"

namespace moestro::decode {
namespace {

// Sequences of the measured steps: bounds what the start takes.
constexpr int64_t kMostMeasured = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<BatchDevice>> BatchDevice::Create(const DecodeConfig& config,
                                                                 const weights::WeightSegment& segment,
                                                                 const CpuKernels& kernels, WorkerPool& workers,
                                                                 int64_t max_rows) {
  std::unique_ptr<BatchDevice> batch(new BatchDevice());
  const weights::ModelSpec& spec = segment.spec();
  if (spec.num_moe_layers() == 0) {
    return absl::InvalidArgumentError("--device " + config.device +
                                      ": the model has no routed experts to stream to the device; use none");
  }
  MOE_ASSIGN_OR_RETURN(batch->weights_, model::BindWeights(segment));
  const std::string flag = "--device " + config.device;
  MOE_RETURN_IF_ERROR(Annotate(batch->Open(config, segment, kernels, workers, max_rows), flag));
  MOE_RETURN_IF_ERROR(Annotate(batch->Measure(config), flag));
  return batch;
}

absl::Status BatchDevice::Open(const DecodeConfig& config, const weights::WeightSegment& segment,
                               const CpuKernels& kernels, WorkerPool& workers, int64_t max_rows) {
  const weights::ModelSpec& spec = segment.spec();
  BatchForward::Options options{
      .max_rows = max_rows, .schedule = config.batch_schedule, .memory_bytes = config.device_memory_bytes};
  BatchForward::MakeCompute make_compute;
  if (const std::optional<int> ordinal = config.cuda_ordinal()) {
    const device::CudaDeviceOptions gpu{.ordinal = *ordinal,
                                        .registered_bytes = PinnedWeightBytes(segment, config.pin_bytes)};
    const Int8Activations setting = kernels.int8_activations;
    MOE_ASSIGN_OR_RETURN(engine::CudaBatchBackend backend,
                         engine::OpenCudaBatch(gpu, spec, weights_, max_rows, setting));
    devices_.push_back(std::move(backend.device));
    if (options.memory_bytes == 0) options.memory_bytes = devices_.front()->memory_free();
    if (options.memory_bytes <= backend.compute_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--device-memory: dense weights and activations take ", backend.compute_bytes, " bytes (less ",
          "with a smaller --max-batch and --max-chunk-tokens), of which there are ", options.memory_bytes));
    }
    options.memory_bytes -= backend.compute_bytes;
    make_compute = [this, &spec, max_rows, setting](const model::ModelWeights& on_device) {
      return engine::NewCudaBatch(*devices_.front(), spec, weights_, on_device, max_rows, setting);
    };
  } else {
    if (options.memory_bytes == 0) options.memory_bytes = device::kHostDeviceBytes;
    for (int i = 0; i < config.devices; ++i) {
      devices_.push_back(device::NewHostDevice(
          {.memory_bytes = options.memory_bytes, .copy_bytes_per_second = static_cast<double>(config.copy_rate)}));
    }
    make_compute = [&spec, &kernels, &workers, max_rows, count = config.devices](const model::ModelWeights& on_device) {
      return std::make_unique<engine::HostBatch>(spec, on_device, kernels, max_rows, workers.own_threads(), count);
    };
  }
  std::vector<device::Device*> devices;
  for (const auto& device : devices_) devices.push_back(device.get());
  absl::StatusOr<std::unique_ptr<BatchForward>> forward =
      BatchForward::Create(spec, weights_, kernels, workers, devices, make_compute, options);
  if (absl::IsResourceExhausted(forward.status())) {
    return absl::InvalidArgumentError(absl::StrCat("--device-memory: ", forward.status().message()));
  }
  MOE_RETURN_IF_ERROR(forward.status());
  forward_ = *std::move(forward);
  if (config.cuda_ordinal()) {
    pinning_ = PinWeights(*devices_.front(), segment, config.pin_bytes, "experts come slower");
  }
  return absl::OkStatus();
}

absl::Status BatchDevice::Measure(const DecodeConfig& config) {
  const WeightPages& pages = forward_->pages();
  LogInfo("--batch-schedule {}: {} of {} routed experts stay on {}, {:.1f} MB of others come in each step",
          WordOf(kBatchScheduleWords, config.batch_schedule), pages.resident(), pages.experts(),
          config.devices == 1 ? "the device" : fmt::format("{} devices, which share each", config.devices),
          static_cast<double>(forward_->streamed_bytes()) / 1e6);
  const int64_t sequences = std::min<int64_t>(config.limits().max_batch, kMostMeasured);
  MOE_ASSIGN_OR_RETURN(const StepCosts costs, MeasureStepCosts(*forward_, sequences));
  if (config.micro_batch > 0) forward_->set_micro_batch(config.micro_batch);
  forward_->set_costs(costs, /*choose=*/config.micro_batch == 0);
  const StepForecast forecast = forward_->ForecastOf(sequences, /*tokens=*/512);
  const auto share = [&](Resource resource) {
    return 100 * forecast.busy[static_cast<size_t>(resource)] / forecast.seconds;
  };
  LogInfo(
      "a step of {} sequences of 512 tokens should take {:.0f} ms: the device works {:.0f} % of it, "
      "the host's attention {:.0f} %, copies to the device {:.0f} %, copies back {:.0f} %",
      sequences, 1e3 * forecast.seconds, share(Resource::kDevice), share(Resource::kHost), share(Resource::kToDevice),
      share(Resource::kToHost));
  return absl::OkStatus();
}

}  // namespace moestro::decode
