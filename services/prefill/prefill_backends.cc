#include "services/prefill/prefill_backends.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/device/host/host_device.h"
#include "common/engine/cuda/backend.h"
#include "common/engine/host/host_prefill.h"
#include "common/engine/host/host_rank_kernels.h"

namespace moestro::prefill {
namespace {

constexpr int64_t kDefaultHostBytes = int64_t{4} << 30;

MemoryLimits LimitsOf(const StreamConfig& config) {
  return {.device_bytes = config.memory_bytes,
          .dense_bytes = config.dense_bytes,
          .ring_slots = config.ring_slots,
          .min_pass_rows = config.min_pass_tokens};
}

// The part of the role's threads, and of those on lent CPUs, that belongs to one device.
WorkerPool::Options ShareOf(const PrefillConfig& config, int own_threads, int64_t device, int64_t devices) {
  WorkerPool::Options options;
  options.threads = static_cast<int>(std::max<int64_t>(1, EvenPart(own_threads, device, devices).size()));
  if (config.cpu.threads == 0) {
    const IndexRange lent = EvenPart(std::ssize(config.lent_cpus), device, devices);
    options.lent_cpus.assign(config.lent_cpus.begin() + lent.begin, config.lent_cpus.begin() + lent.end);
  }
  return options;
}

// Registers `memory`. Logs how much is registered, and again whenever that changes.
std::unique_ptr<device::Pinning> Pin(device::Device& device, const char* what, std::span<const uint8_t> memory,
                                     const device::Pinning::Options& options) {
  const int64_t bytes = std::ssize(memory);
  return std::make_unique<device::Pinning>(
      device, memory.data(), bytes, options, [what, bytes](int64_t pinned, const absl::Status& status) {
        if (status.ok()) return spdlog::info("{} of {} bytes of {} are registered for copies", pinned, bytes, what);
        spdlog::warn(
            "{} of {} bytes of {} are registered for copies, the others are copied more slowly; retried "
            "later: {}",
            pinned, bytes, what, std::string(status.message()));
      });
}

}  // namespace

// What a rank on a host device computes with. A thread that is left behind keeps it.
struct PrefillBackends::HostRank {
  HostRank(std::shared_ptr<const Model> its_model, std::shared_ptr<device::Device> its_device,
           const WorkerPool::Options& threads, const CpuKernels& cpu_kernels, int64_t tile_rows)
      : model(std::move(its_model)),
        device(std::move(its_device)),
        workers(threads),
        kernels(model->segment->spec(), model->weights, cpu_kernels, workers, tile_rows) {}

  const std::shared_ptr<const Model> model;
  const std::shared_ptr<device::Device> device;
  WorkerPool workers;
  engine::HostRankKernels kernels;
};

// The same for a rank on a GPU.
struct PrefillBackends::CudaRank {
  const std::shared_ptr<const Model> model;
  const std::shared_ptr<device::Device> device;
  const std::unique_ptr<engine::RankKernels> kernels;
};

absl::StatusOr<PrefillBackends::Device> PrefillBackends::Open(const PrefillConfig& config,
                                                              const device::DeviceName& name, const CpuKernels& kernels,
                                                              WorkerPool& workers) const {
  const weights::ModelSpec& spec = model_->segment->spec();
  const int64_t bytes = config.stream.memory_bytes;
  Device opened;
  if (name.cuda_ordinal) {
    const int64_t weight_bytes = model_->segment->header().total_bytes, pin_bytes = config.stream.pin_bytes;
    MOE_ASSIGN_OR_RETURN(
        engine::CudaPrefillBackend backend,
        engine::OpenCudaPrefill({.ordinal = *name.cuda_ordinal,
                                 .memory_bytes = bytes,
                                 .registered_bytes = pin_bytes > 0 ? std::min(pin_bytes, weight_bytes) : weight_bytes},
                                spec, model_->weights));
    opened.device = std::move(backend.device);
    opened.compute = std::move(backend.compute);
  } else {
    opened.device = device::NewHostDevice({.memory_bytes = bytes > 0 ? bytes : kDefaultHostBytes});
    opened.compute =
        std::make_unique<engine::HostPrefill>(spec, model_->weights, kernels, workers, config.chunk_tokens);
  }
  opened.prefill =
      std::make_unique<StreamPrefill>(*opened.device, spec, model_->weights, *opened.compute, LimitsOf(config.stream));
  return opened;
}

absl::StatusOr<PromptDevice> PrefillBackends::Rank(const PrefillConfig& config, const device::DeviceName& name,
                                                   const CpuKernels& kernels, const WorkerPool& workers, int64_t rank) {
  Device& device = devices_[static_cast<size_t>(rank)];
  if (name.cuda_ordinal) {
    MOE_ASSIGN_OR_RETURN(auto rank_kernels,
                         engine::NewCudaRankKernels(*device.device, model_->segment->spec(), model_->weights));
    const auto gpu = std::make_shared<CudaRank>(model_, device.device, std::move(rank_kernels));
    return PromptDevice{.name = name.Text(),
                        .rank = {.device = gpu->device.get(), .kernels = gpu->kernels.get(), .owner = gpu},
                        .single = device.prefill.get(),
                        .workers = nullptr};
  }
  const auto host = std::make_shared<HostRank>(model_, device.device,
                                               ShareOf(config, workers.own_threads(), rank, std::ssize(devices_)),
                                               kernels, config.chunk_tokens);
  return PromptDevice{.name = absl::StrCat(std::string(device.device->name()), " ", rank),
                      .rank = {.device = host->device.get(), .kernels = &host->kernels, .owner = host},
                      .single = device.prefill.get(),
                      .workers = &host->workers};
}

absl::StatusOr<std::unique_ptr<PrefillBackends>> PrefillBackends::Create(
    const PrefillConfig& config, std::shared_ptr<const weights::WeightSegment> segment, const CpuKernels& kernels,
    WorkerPool& workers) {
  MOE_ASSIGN_OR_RETURN(const std::vector<device::DeviceName> names, config.stream.DeviceNames());
  if (names.empty()) return nullptr;
  MOE_ASSIGN_OR_RETURN(model::ModelWeights weights, model::BindWeights(*segment));
  std::unique_ptr<PrefillBackends> streaming(new PrefillBackends());
  streaming->model_ = std::make_shared<Model>(std::move(segment), std::move(weights));
  const Model& model = *streaming->model_;
  const weights::ModelSpec& spec = model.segment->spec();
  const auto computed_without = [&](const absl::Status& status) {
    spdlog::warn("{} is not used, all prompts are computed in place: {}", config.stream.DeviceFlag(),
                 std::string(status.message()));
    return nullptr;
  };
  for (const device::DeviceName& name : names) {
    absl::StatusOr<Device> opened = streaming->Open(config, name, kernels, workers);
    if (!opened.ok()) return computed_without(opened.status());
    streaming->devices_.push_back(*std::move(opened));
  }
  if (names.size() > 1) {
    std::vector<PromptDevice> ranks;
    for (int64_t rank = 0; rank < std::ssize(names); ++rank) {
      absl::StatusOr<PromptDevice> device =
          streaming->Rank(config, names[static_cast<size_t>(rank)], kernels, workers, rank);
      if (!device.ok()) return computed_without(device.status());
      ranks.push_back(*std::move(device));
    }
    if (config.stream.borrows()) {
      ranks.back().name += " (decode's)";
      ranks.back().borrow = [path = DecodeDevicePath(config.node)] { return DeviceLoan::Borrow(path); };
    }
    streaming->group_ = std::make_unique<MultiDevicePrefill>(
        spec, model.weights, std::move(ranks),
        MultiDevicePrefill::Options{LimitsOf(config.stream), config.stream.device_timeout_seconds});
  }
  const int64_t shortest = std::min(config.stream.from_tokens, spec.max_position_embeddings);
  const model::MlaForm form = streaming->prefill().FormFor(config.mla_form.ForPrompt(shortest));
  if (const absl::Status fits = streaming->prefill().CheckFits({0, shortest}, form); !fits.ok()) {
    return computed_without(fits);
  }
  const Device& first = streaming->devices_[0];
  const auto plan = first.prefill->Plan(shortest, form);
  spdlog::info("prompts of {} tokens and more stream through {} with {} bytes: {} of {} experts of a layer fit",
               config.stream.from_tokens,
               names.size() == 1 ? std::string(first.device->name())
                                 : absl::StrCat(names.size(), " devices (", config.stream.DeviceFlag(), "), each"),
               first.device->memory_bytes(), plan.ok() ? plan->ring_slots : 0, spec.num_experts);
  streaming->PinWeights(config.stream.pin_bytes);
  return streaming;
}

void PrefillBackends::PinWeights(int64_t limit_bytes) {
  const weights::SegmentHeader& header = model_->segment->header();
  for (Device& device : devices_) {
    device.weights = Pin(*device.device, "the weights",
                         {reinterpret_cast<const uint8_t*>(&header), static_cast<size_t>(header.total_bytes)},
                         {.limit_bytes = limit_bytes});
  }
}

void PrefillBackends::UsePool(const std::shared_ptr<const kv::KvPoolMapping>& pool) {
  if (pool == pool_) return;
  for (Device& device : devices_) device.pool.reset();  // before its mapping
  pool_ = pool;
  if (pool_ == nullptr) return;
  for (Device& device : devices_) {
    device.pool =
        Pin(*device.device, "the KV pool", pool->PagesMemory(), {.access = device::HostAccess::kReadsAndWrites});
  }
}

void PrefillBackends::BetweenPrompts() {
  if (pool_ != nullptr && !pool_->HasOwner()) {
    spdlog::info("the KV pool {} has lost its owner: its memory is released", pool_->name());
    UsePool(nullptr);
  }
  for (Device& device : devices_) {
    device.weights->Retry();
    if (device.pool != nullptr) device.pool->Retry();
  }
}

}  // namespace moestro::prefill
