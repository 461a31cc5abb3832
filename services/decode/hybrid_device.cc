#include "services/decode/hybrid_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/device/host/host_device.h"
#include "common/engine/cuda/backend.h"
#include "common/engine/host/host_decode.h"
#include "common/telemetry/log.h"
#include "services/decode/logged_pinning.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/measure.h"
#include "services/decode/overlap/split.h"

namespace moestro::decode {
namespace {

// Rows of a step whose experts are scheduled. Prompts of a fixed mapping use the CPU alone: they would leave the cache
// to what they used last.
int64_t ScheduledRows(const DecodeConfig& config, const StepLimits& room) {
  if (config.expert_cache_bytes == 0) return 0;
  return config.near_units == 0 && config.expert_schedule == experts::Schedule::kFixed ? room.max_batch : room.rows();
}

// Experts that a layer's pass loads: as many as a token needs, where they are loaded for the pass or for the next
// layers.
int64_t MostLoads(const DecodeConfig& config, const weights::ModelSpec& spec) {
  if (config.expert_schedule != experts::Schedule::kFixed || config.prefetch_layers > 0) return spec.experts_per_token;
  return config.expert_policy == experts::Policy::kFirstLayers ? 0 : 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HybridDevice>> HybridDevice::Create(const DecodeConfig& config,
                                                                   const weights::WeightSegment& segment,
                                                                   const CpuKernels& kernels, WorkerPool& workers,
                                                                   const kv::KvPool& pool, const StepLimits& room,
                                                                   model::RoutingRecorder* recorder) {
  const int64_t max_rows = room.rows();
  std::unique_ptr<HybridDevice> hybrid(new HybridDevice());
  const weights::ModelSpec& spec = segment.spec();
  if (spec.num_moe_layers() == 0 && config.expert_cache_bytes > 0) {
    return absl::InvalidArgumentError("--expert-cache-bytes: the model has no routed experts; use 0");
  }
  hybrid->overlap_ = config.overlap;
  MOE_ASSIGN_OR_RETURN(hybrid->weights_, model::BindWeights(segment));
  MOE_RETURN_IF_ERROR(
      Annotate(hybrid->Open(config, segment, kernels, workers, pool, room), "--device " + config.device));
  hybrid->experts_ = std::make_unique<CpuExperts>(spec, hybrid->weights_, kernels, workers, max_rows);
  engine::RoutedExperts* experts = hybrid->experts_.get();
  if (config.near_units > 0) {
    MOE_RETURN_IF_ERROR(
        Annotate(hybrid->DivideExperts(config, spec, kernels, workers, max_rows), "--expert-cache-bytes"));
    experts = hybrid->domains_.get();
  } else if (config.expert_cache_bytes > 0) {
    MOE_RETURN_IF_ERROR(
        Annotate(hybrid->ScheduleExperts(config, spec, kernels, workers, room), "--expert-cache-bytes"));
    experts = hybrid->scheduled_.get();
  }
  HybridForward::Options options{
      .max_rows = max_rows,
      .split = [self = hybrid.get()](const model::CheckedBatch& batch) { return self->Split(batch); }};
  if (recorder != nullptr) {
    options.on_routing = [recorder](const model::LayerRouting& routing) { recorder->Note(routing); };
  }
  MOE_ASSIGN_OR_RETURN(hybrid->forward_,
                       HybridForward::Create(spec, *hybrid->device_, *hybrid->compute_, *experts, std::move(options)));
  MOE_ASSIGN_OR_RETURN(CostModel costs, MeasureCosts(*hybrid->forward_, max_rows));
  hybrid->costs_ = std::make_unique<CostModel>(std::move(costs));
  const auto with_layer = [&](experts::ExpertCosts of_experts) {
    hybrid->costs_->AddTo(of_experts);
    return of_experts;
  };
  if (hybrid->domains_ != nullptr) hybrid->domains_->SetCosts(with_layer(hybrid->domains_->costs()));
  if (hybrid->scheduled_ != nullptr) {
    hybrid->scheduled_->SetCosts(with_layer(hybrid->scheduled_->costs()));
    hybrid->scheduled_->Forget();  // what the measurement has used
    hybrid->expert_pinning_ =
        PinWeights(*hybrid->device_, segment, config.pin_bytes, "loading other experts delays steps");
  }
  hybrid->LogChoice(room.max_batch);
  return hybrid;
}

absl::Status HybridDevice::ScheduleExperts(const DecodeConfig& config, const weights::ModelSpec& spec,
                                           const CpuKernels& kernels, WorkerPool& workers, const StepLimits& room) {
  const ScheduledExperts::Options options{.schedule = config.expert_schedule,
                                          .policy = config.expert_policy,
                                          .budget_bytes = config.expert_cache_bytes,
                                          .most_loads = MostLoads(config, spec),
                                          .prefetch_layers = config.prefetch_layers,
                                          .max_rows = ScheduledRows(config, room)};
  MOE_ASSIGN_OR_RETURN(
      scheduled_, ScheduledExperts::Create(spec, weights_, kernels, workers, *experts_, *compute_, *device_, options));
  MOE_RETURN_IF_ERROR(scheduled_->MeasureCosts(*device_));
  LogCosts(scheduled_->costs(),
           fmt::format("--expert-schedule {}, --expert-policy {}", WordOf(kScheduleWords, config.expert_schedule),
                       WordOf(kPolicyWords, config.expert_policy)),
           scheduled_->held_experts(), spec.num_experts * spec.num_moe_layers());
  return absl::OkStatus();
}

absl::Status HybridDevice::DivideExperts(const DecodeConfig& config, const weights::ModelSpec& spec,
                                         const CpuKernels& kernels, WorkerPool& workers, int64_t max_rows) {
  const DomainExperts::Options options{.schedule = config.domain_schedule,
                                       .budget_bytes = config.expert_cache_bytes,
                                       .most_loads = spec.experts_per_token,
                                       .near_units = config.near_units,
                                       .near_bytes_per_second = static_cast<double>(config.near_rate),
                                       .max_rows = max_rows};
  MOE_ASSIGN_OR_RETURN(
      domains_, DomainExperts::Create(spec, weights_, kernels, workers, *experts_, *compute_, *device_, options));
  MOE_RETURN_IF_ERROR(domains_->MeasureCosts(*device_));
  LogCosts(domains_->costs(),
           fmt::format("--near-units {}, --domain-schedule {}", config.near_units,
                       WordOf(kDomainScheduleWords, config.domain_schedule)),
           domains_->held_experts(), spec.num_experts * spec.num_moe_layers());
  return absl::OkStatus();
}

void HybridDevice::LogCosts(const experts::ExpertCosts& costs, const std::string& flags, int64_t held,
                            int64_t all) const {
  LogInfo(
      "{}: the device holds up to {} of {} experts; an expert of one row: {:.0f} us on the CPU ({:.0f} more for the "
      "first), {:.0f} on the device ({:.0f} more), {:.0f} to load",
      flags, held, all, 1e6 * costs.host.At(1), 1e6 * costs.host_start, 1e6 * costs.device.At(1),
      1e6 * costs.device_start, 1e6 * costs.load);
}

absl::Status HybridDevice::Open(const DecodeConfig& config, const weights::WeightSegment& segment,
                                const CpuKernels& kernels, const WorkerPool& workers, const kv::KvPool& pool,
                                const StepLimits& room) {
  const weights::ModelSpec& spec = segment.spec();
  const int64_t max_rows = room.rows(), hot_rows = ScheduledRows(config, room);
  if (const std::optional<int> ordinal = config.cuda_ordinal()) {
    const std::span<const uint8_t> pages = pool.PagesMemory();
    const int64_t weight_bytes = hot_rows > 0 ? PinnedWeightBytes(segment, config.pin_bytes) : 0;
    const device::CudaDeviceOptions gpu{.ordinal = *ordinal, .registered_bytes = std::ssize(pages) + weight_bytes};
    MOE_ASSIGN_OR_RETURN(engine::CudaDecodeBackend backend,
                         engine::OpenCudaDecode(gpu, spec, weights_,
                                                {.max_rows = max_rows,
                                                 .max_sequences = room.max_batch,
                                                 .kv_pages = pool.geometry().page_count,
                                                 .reserved_bytes = config.expert_cache_bytes,
                                                 .hot_rows = hot_rows,
                                                 .int8_activations = kernels.int8_activations}));
    device_ = std::move(backend.device);
    compute_ = std::move(backend.compute);
    if (compute_->most_pages() < pool.geometry().page_count) {
      LogInfo("the device has room for {} of {} KV pages: those used last", compute_->most_pages(),
              pool.geometry().page_count);
    }
    // Prefill and this role write it, so it is not registered as read-only.
    page_pinning_ = PinLogged(*device_, "the KV pool", "taking over sequences is slower", pages,
                              {.access = device::HostAccess::kReadsAndWrites});
    return absl::OkStatus();
  }
  constexpr int64_t kOtherBytes = int64_t{1} << 30;  // for the arrays that a pass hands over
  device_ = device::NewHostDevice({.memory_bytes = config.expert_cache_bytes + kOtherBytes,
                                   .copy_bytes_per_second = static_cast<double>(config.copy_rate)});
  compute_ = std::make_unique<engine::HostDecode>(spec, weights_, kernels, max_rows, workers.own_threads(), hot_rows);
  return absl::OkStatus();
}

void HybridDevice::RetryPinning() {
  for (device::Pinning* pinning : {page_pinning_.get(), expert_pinning_.get()}) {
    if (pinning != nullptr) pinning->Retry();
  }
}

size_t HybridDevice::Split(const model::CheckedBatch& batch) const {
  const size_t whole = batch.runs.size();
  if (overlap_ == Overlap::kOff) return whole;
  const size_t first = SplitRuns(batch);
  const int64_t rows = batch.runs[first - 1].end;
  if (overlap_ == Overlap::kOn) return first;
  return costs_->TwoBatches(rows, batch.size() - rows) < costs_->OneBatch(batch.size()) ? first : whole;
}

void HybridDevice::LogChoice(int max_batch) const {
  std::string predicted;
  for (int64_t rows = 2; rows <= max_batch; rows *= 2) {
    const double two = costs_->TwoBatches(rows - rows / 2, rows / 2);
    const double one = costs_->OneBatch(rows);
    const bool cut = overlap_ == Overlap::kOn || (overlap_ == Overlap::kAuto && two < one);
    predicted += fmt::format("{}{}: {} ({:.2f} ms, the other {:.2f})", rows == 2 ? "" : ", ", rows, cut ? "two" : "one",
                             1e3 * (cut ? two : one), 1e3 * (cut ? one : two));
  }
  const LayerTimes layer = costs_->At(1);
  LogInfo(
      "--device {}, --overlap {}: batches for each number of sequences: {}; a layer of one row: attention {:.0f} us, "
      "shared "
      "expert {:.0f}, routed experts {:.0f}, copies {:.0f}, waking {:.0f}",
      device_->name(), WordOf(kOverlapWords, overlap_), max_batch == 1 ? "1: one" : predicted, 1e6 * layer.attend,
      1e6 * layer.shared, 1e6 * layer.experts, 1e6 * layer.transfer, 1e6 * layer.sync);
}

}  // namespace moestro::decode
