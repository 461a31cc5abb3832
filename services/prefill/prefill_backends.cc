#include "services/prefill/prefill_backends.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/base/steady_seconds.h"
#include "common/device/host/host_device.h"
#include "common/engine/cuda/backend.h"
#include "common/engine/host/host_prefill.h"
#include "common/engine/host/host_rank_kernels.h"
#include "common/model/schema.h"
#include "common/telemetry/log.h"
#include "services/prefill/device_shares.h"
#include "services/prefill/prompt_costs.h"

namespace moestro::prefill {
namespace {

MemoryLimits LimitsOf(const StreamConfig& config) {
  return {.device_bytes = config.memory_bytes,
          .dense_bytes = config.dense_bytes,
          .ring_slots = config.ring_slots,
          .min_pass_rows = config.min_pass_tokens};
}

// The part of the role's threads, and of those on lent CPUs, that belongs to one device.
WorkerPool::Options ShareOf(const PrefillConfig& config, int own_threads, int64_t device,
                            const ProportionalParts& devices) {
  WorkerPool::Options options;
  options.threads = static_cast<int>(std::max<int64_t>(1, devices.Part(own_threads, device).size()));
  if (config.cpu.threads == 0) {
    const IndexRange lent = devices.Part(std::ssize(config.lent_cpus), device);
    options.lent_cpus.assign(config.lent_cpus.begin() + lent.begin, config.lent_cpus.begin() + lent.end);
  }
  return options;
}

// For messages.
std::string Text(const ProportionalParts& parts) {
  std::vector<int64_t> shares;
  for (int64_t part = 0; part < parts.parts(); ++part) shares.push_back(parts.share(part));
  return absl::StrJoin(shares, " : ");
}

std::string Text(const absl::StatusOr<ExchangeChoice>& exchange) {
  if (exchange.ok() && exchange->peers) return ", exchanges from device to device";
  const std::string reason = exchange.ok() ? exchange->reason : std::string(exchange.status().message());
  return absl::StrCat(", exchanges through the host's memory", reason.empty() ? "" : " (", reason,
                      reason.empty() ? "" : ")");
}

// Of many tokens, on one device.
double LayerSeconds(const roofline::LayerTimes& times) {
  const roofline::LayerTimes::Sample& many = times.samples.back();
  return many.moe > 0 ? many.moe : many.dense;
}

void LogFp8Inputs(const device::DeviceName& gpu, bool fp8_inputs) {
  if (fp8_inputs) {
    return LogInfo("prompts on {} round inputs of FP8 weights to FP8, as the checkpoint is published", gpu.Text());
  }
  LogWarning(
      "{} does not multiply FP8 (compute capability 8.9, 9.0, or 12.0 and later): its prompts keep inputs of FP8 "
      "weights in "
      "BF16",
      gpu.Text());
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
  std::unique_ptr<engine::RankKernels> kernels;
};

PrefillBackends::PrefillBackends(const PrefillConfig& config, const CpuKernels& kernels, WorkerPool& workers)
    : config_(config), kernels_(kernels), workers_(workers) {}

PrefillBackends::~PrefillBackends() = default;

absl::StatusOr<PrefillBackends::Device> PrefillBackends::Open(const device::DeviceName& name) const {
  const weights::ModelSpec& spec = model_->segment->spec();
  const int64_t bytes = config_.stream.memory_bytes;
  Device opened;
  if (name.cuda_ordinal) {
    const bool wanted = config_.activations != PrefillActivations::kBf16 && model::HasFp8Weights(spec, model_->weights);
    if (wanted) {
      MOE_ASSIGN_OR_RETURN(opened.fp8_inputs, engine::CudaTakesFp8Inputs(*name.cuda_ordinal));
    }
    const int64_t weight_bytes = model_->segment->header().total_bytes, pin_bytes = config_.stream.pin_bytes;
    MOE_ASSIGN_OR_RETURN(
        engine::CudaPrefillBackend backend,
        engine::OpenCudaPrefill({.ordinal = *name.cuda_ordinal,
                                 .memory_bytes = bytes,
                                 .registered_bytes = pin_bytes > 0 ? std::min(pin_bytes, weight_bytes) : weight_bytes},
                                spec, model_->weights, kernels_.int8_activations, opened.fp8_inputs));
    opened.device = std::move(backend.device);
    opened.compute = std::move(backend.compute);
    if (wanted) LogFp8Inputs(name, opened.fp8_inputs);
  } else {
    opened.fp8_inputs = kernels_.fp8_activations && model::HasFp8Weights(spec, model_->weights);
    opened.device = device::NewHostDevice({.memory_bytes = bytes > 0 ? bytes : device::kHostDeviceBytes});
    opened.compute =
        std::make_unique<engine::HostPrefill>(spec, model_->weights, kernels_, workers_, config_.tile_tokens());
  }
  opened.prefill =
      std::make_unique<StreamPrefill>(*opened.device, spec, model_->weights, *opened.compute, LimitsOf(config_.stream));
  return opened;
}

std::string PrefillBackends::NameOf(size_t index) const {
  const device::DeviceName& name = named_[index].name;
  return name.cuda_ordinal ? name.Text() : absl::StrCat(name.Text(), ":", index);
}

absl::StatusOr<PromptDevice> PrefillBackends::Rank(size_t index) {
  Named& named = named_[index];
  Device& device = *named.opened;
  PromptDevice made{.name = NameOf(index), .rank = {}, .single = device.prefill.get(), .workers = nullptr};
  if (named.name.cuda_ordinal) {
    MOE_ASSIGN_OR_RETURN(auto rank_kernels,
                         engine::NewCudaRankKernels(*device.device, model_->segment->spec(), model_->weights,
                                                    kernels_.int8_activations, device.fp8_inputs));
    const auto gpu = std::make_shared<CudaRank>(CudaRank{model_, device.device, std::move(rank_kernels)});
    made.rank = {.device = gpu->device.get(), .kernels = gpu->kernels.get(), .owner = gpu};
  } else {
    const auto rank = static_cast<int64_t>(index);
    std::vector<int64_t> shares;
    for (const Named& each : named_) shares.push_back(each.share);
    const auto host = std::make_shared<HostRank>(
        model_, device.device, ShareOf(config_, workers_.own_threads(), rank, ProportionalParts(shares)), kernels_,
        config_.tile_tokens());
    made.rank = {.device = host->device.get(), .kernels = &host->kernels, .owner = host};
    made.workers = &host->workers;
  }
  made.rank.share = named.share;
  if (IsBorrowed(index)) {
    made.name += " (decode's)";
    made.borrow = [path = DecodeDevicePath(config_.node)] { return DeviceLoan::Borrow(path); };
  }
  return made;
}

absl::StatusOr<std::unique_ptr<PrefillBackends>> PrefillBackends::Create(
    const PrefillConfig& config, std::shared_ptr<const weights::WeightSegment> segment, const CpuKernels& kernels,
    WorkerPool& workers) {
  MOE_ASSIGN_OR_RETURN(const std::vector<device::DeviceName> names, config.stream.DeviceNames());
  if (names.empty()) return nullptr;
  MOE_ASSIGN_OR_RETURN(model::ModelWeights weights, model::BindWeights(*segment));
  std::unique_ptr<PrefillBackends> backends(new PrefillBackends(config, kernels, workers));
  backends->model_ = std::make_shared<Model>(Model{std::move(segment), std::move(weights)});
  MOE_ASSIGN_OR_RETURN(const std::vector<int64_t> shares, config.stream.DeviceShares());
  for (size_t i = 0; i < names.size(); ++i) backends->named_.push_back({.name = names[i], .share = shares[i]});
  backends->OpenMissing();
  MOE_RETURN_IF_ERROR(backends->exchange_.status());
  backends->retry_at_ = SteadySeconds() + kRetrySeconds;
  return backends;
}

PromptPrefill* PrefillBackends::prefill() {
  if (group_ != nullptr) return group_.get();
  return named_.size() == 1 && named_[0].opened ? named_[0].opened->prefill.get() : nullptr;
}

void PrefillBackends::OpenMissing() {
  const bool streams = !opened().empty();
  bool more = false, refused = false;
  for (Named& each : named_) {
    if (each.opened) continue;
    absl::StatusOr<Device> device = Open(each.name);
    if (device.ok()) {
      each.opened = *std::move(device);
      more = true;
    } else if (each.refused != device.status()) {
      each.refused = device.status();
      refused = true;
    }
  }
  if (more && named_.size() > 1) refused |= !MakeGroup();
  if (const absl::Status fits = streams || !more ? absl::OkStatus() : CheckShortest(); !fits.ok()) {
    group_.reset();
    for (Named& each : named_) {
      if (!each.opened) continue;
      each.opened.reset();
      refused |= each.refused != fits;
      each.refused = fits;
    }
    more = false;
  }
  if (refused) LogRefused();
  if (more) {
    ring_slots_ = RingSlots();
    LogOpened();
  }
  for (Named& each : named_) {
    if (!each.opened || each.opened->weights != nullptr) continue;
    each.refused = absl::OkStatus();
    PinWeights(*each.opened);
  }
  UpdateState();
}

bool PrefillBackends::MakeGroup() {
  group_.reset();
  bool complete = true;
  std::vector<PromptDevice> ranks;
  for (size_t i = 0; i < named_.size(); ++i) {
    if (!named_[i].opened) continue;
    absl::StatusOr<PromptDevice> rank = Rank(i);
    if (rank.ok()) {
      ranks.push_back(*std::move(rank));
    } else {
      named_[i].opened.reset();
      named_[i].refused = rank.status();
      complete = false;
    }
  }
  if (ranks.empty()) return complete;
  std::vector<device::Device*> devices;
  for (const PromptDevice& rank : ranks) devices.push_back(rank.rank.device);
  exchange_ = ChooseExchange(config_.stream.device_exchange, devices);
  group_ = std::make_unique<MultiDevicePrefill>(
      model_->segment->spec(), model_->weights, std::move(ranks),
      MultiDevicePrefill::Options{.limits = LimitsOf(config_.stream),
                                  .experts = config_.stream.expert_parallel,
                                  .timeout_seconds = config_.stream.device_timeout_seconds,
                                  .peers = exchange_.ok() && exchange_->peers});
  return complete;
}

std::vector<const PrefillBackends::Device*> PrefillBackends::opened() const {
  std::vector<const Device*> opened;
  for (const Named& each : named_) {
    if (each.opened) opened.push_back(&*each.opened);
  }
  return opened;
}

ProportionalParts PrefillBackends::Parts(int64_t devices) const {
  std::vector<int64_t> shares;
  for (const Named& each : named_) {
    if (each.opened && std::ssize(shares) < devices) shares.push_back(each.share);
  }
  return ProportionalParts(shares);
}

// A borrowed device may be the only one, and is not to be had at all times.
absl::Status PrefillBackends::CheckShortest() {
  if (opened().empty()) return absl::OkStatus();  // as the log says
  StreamPrefill& first = *opened().front()->prefill;
  const absl::Status fits = first.CheckFits({0, shortest()}, ShortestForm(first));
  if (fits.ok() || group_ == nullptr) return fits;
  return group_->CheckFits({0, shortest()}, ShortestForm(first));
}

void PrefillBackends::LogOpened() const {
  const std::vector<const Device*> devices = opened();
  const ProportionalParts parts = Parts(std::ssize(devices));
  LogInfo("prompts of {} tokens and more stream through {} with {} bytes{}{}: {} of {} experts of a layer fit",
          config_.stream.from_tokens,
          devices.size() == 1 ? std::string(devices[0]->device->name())
                              : absl::StrCat(devices.size(), " devices (", config_.stream.DeviceFlag(), "), each"),
          devices[0]->device->memory_bytes(), parts.total() > parts.parts() ? ", in parts of " + Text(parts) : "",
          devices.size() > 1 ? Text(exchange_) : "", ring_slots_, model_->segment->spec().num_experts);
}

void PrefillBackends::LogRefused() const {
  if (opened().empty()) {
    LogWarning("{} is not used, all prompts are computed in place: {}", config_.stream.DeviceFlag(),
               std::string(named_[0].refused.message()));
    return;
  }
  for (const Named& each : named_) {
    if (each.refused.ok()) continue;
    LogWarning("{} of {} is not used: {}", each.name.Text(), config_.stream.DeviceFlag(),
               std::string(each.refused.message()));
  }
}

int64_t PrefillBackends::shortest() const {
  return std::min(config_.stream.from_tokens, model_->segment->spec().max_position_embeddings);
}

model::MlaForm PrefillBackends::ShortestForm(const StreamPrefill& prefill) const {
  return prefill.FormFor(config_.mla_form.ForPrompt(shortest()));
}

int64_t PrefillBackends::RingSlots() const {
  const std::vector<const Device*> devices = opened();
  if (devices.empty()) return 0;
  const auto plan = devices[0]->prefill->Plan(shortest(), ShortestForm(*devices[0]->prefill));
  return plan.ok() ? plan->ring_slots : 0;
}

void PrefillBackends::PinWeights(Device& device) const {
  const weights::SegmentHeader& header = model_->segment->header();
  device.weights = std::make_unique<device::Pinning>(
      *device.device, reinterpret_cast<const uint8_t*>(&header), header.total_bytes,
      device::Pinning::Options{.limit_bytes = config_.stream.pin_bytes},
      [bytes = header.total_bytes](int64_t pinned, const absl::Status& status) {
        if (status.ok()) return LogInfo("{} of {} bytes of the weights are registered for copies", pinned, bytes);
        LogWarning(
            "{} of {} bytes of the weights are registered for copies, the others are copied more slowly; retried "
            "later: {}",
            pinned, bytes, std::string(status.message()));
      });
}

absl::StatusOr<std::vector<roofline::LayerTimes>> PrefillBackends::MeasureOthers(const roofline::LayerTimes& times,
                                                                                 const StreamMeasureOptions& options) {
  std::map<std::string, roofline::LayerTimes, std::less<>> by_kind;
  std::vector<roofline::LayerTimes> all;
  for (size_t i = 0; i < named_.size(); ++i) {
    if (!named_[i].opened) continue;
    const Device& device = *named_[i].opened;
    auto known = by_kind.find(device.device->kind());
    if (known == by_kind.end()) {
      roofline::LayerTimes measured = times;
      if (!all.empty() && !IsBorrowed(i)) {  // decode may be computing on a borrowed one
        MOE_ASSIGN_OR_RETURN(measured, MeasureStream(*device.prefill, model_->segment->spec(), options));
      }
      if (LayerSeconds(measured) <= 0) return absl::InternalError(named_[i].name.Text() + ": a layer took no time");
      known = by_kind.emplace(device.device->kind(), std::move(measured)).first;
    }
    all.push_back(known->second);
  }
  return all;
}

void PrefillBackends::SetShares(const absl::StatusOr<std::vector<roofline::LayerTimes>>& times) {
  std::vector<int64_t> shares(opened().size(), 1);
  std::vector<double> seconds;
  if (times.ok()) {
    std::ranges::transform(*times, std::back_inserter(seconds), LayerSeconds);
    shares = SharesOf(seconds);
  }
  group_->SetShares(shares);
  size_t next = 0;
  for (Named& each : named_) {
    if (each.opened) each.share = shares[next++];
  }
  if (std::ranges::adjacent_find(seconds, std::not_equal_to<>()) != seconds.end()) {
    LogInfo("{} tokens of a layer take {} s on {}: prompts are cut into parts of {} (--device-shares fixes them)",
            times->front().samples.back().rows, absl::StrJoin(seconds, ", "), config_.stream.DeviceFlag(),
            Text(ProportionalParts(shares)));
  }
}

absl::StatusOr<std::vector<PromptCost>> PrefillBackends::MeasureCosts() {
  const std::vector<const Device*> open = opened();
  if (open.empty()) return std::vector<PromptCost>();
  const weights::ModelSpec& spec = model_->segment->spec();
  StreamPrefill& first = *open.front()->prefill;
  const int64_t longest = spec.max_position_embeddings;
  const auto form_of = [&](int64_t tokens) { return first.FormFor(config_.mla_form.ForPrompt(tokens)); };
  StreamMeasureOptions options{.form = form_of(longest)};
  // A GPU computes few rows no faster than some hundreds. The host computes as in place, in tiles.
  const bool is_gpu = named_[0].name.cuda_ordinal.has_value();
  for (const int64_t rows : {is_gpu ? int64_t{256} : int64_t{config_.tile_tokens()} / 4,
                             is_gpu ? int64_t{2048} : int64_t{config_.tile_tokens()}}) {
    if (rows >= 1 && rows <= longest && first.Plan(rows, options.form).ok()) options.rows.push_back(rows);
  }
  if (options.rows.empty()) return std::vector<PromptCost>();
  MOE_ASSIGN_OR_RETURN(const roofline::LayerTimes first_times, MeasureStream(first, spec, options));
  std::vector<roofline::LayerTimes> times = {first_times};
  if (group_ != nullptr) {
    absl::StatusOr<std::vector<roofline::LayerTimes>> all = MeasureOthers(first_times, options);
    if (!all.ok()) {
      LogWarning(
          "not every device could be measured: by default prompts are cut into equal parts (--device-shares), "
          "and what they take is predicted by the first device: {}",
          std::string(all.status().message()));
    }
    if (config_.stream.measures_shares()) SetShares(all);
    if (all.ok()) times = *std::move(all);
    UpdateState();
  }
  const bool may_borrow = config_.stream.borrows() && named_.back().opened;
  std::vector<PromptCost> costs;
  for (const bool alone : {false, true}) {
    const int64_t devices = std::ssize(open) - (may_borrow && !alone ? 1 : 0);
    if (devices == 0) continue;
    const auto shape = [&](int64_t tokens) -> std::optional<StreamShape> {
      const model::MlaForm form = form_of(tokens);
      if (devices > 1) {
        const int64_t passes = group_->PassesTogether({0, tokens}, form, devices);
        if (passes > 0) {
          return StreamShape{form, {.passes = passes, .devices = Parts(devices), .own_processors = is_gpu}};
        }
      }
      const auto plan = first.Plan(tokens, form);
      if (!plan.ok()) return std::nullopt;
      return StreamShape{form, {.passes = plan->passes}};
    };
    costs.push_back(StreamedCost(spec, times, alone, shape));
  }
  return costs;
}

void PrefillBackends::BetweenPrompts(double now) {
  const bool missing = opened().size() < named_.size();
  if (missing && now >= retry_at_ && (group_ == nullptr || group_->idle())) {
    retry_at_ = now + kRetrySeconds;
    OpenMissing();
  }
  for (Named& each : named_) {
    if (each.opened) each.opened->weights->Retry();
  }
  UpdateState();
}

void PrefillBackends::UpdateState() {
  const std::vector<const Device*> devices = opened();
  State state{.devices = std::ssize(named_), .open = std::ssize(devices), .ring_slots = ring_slots_};
  for (const Device* device : devices) {
    const int64_t registered = device->weights->registered_bytes();
    state.fp8_inputs = state.fp8_inputs || device->fp8_inputs;
    state.registered_bytes = device == devices[0] ? registered : std::min(state.registered_bytes, registered);
  }
  state.peers = group_ != nullptr && state.open > 1 && group_->exchanges_by_peers();
  for (size_t i = 0; i < named_.size(); ++i) {
    state.shares.push_back({NameOf(i), named_[i].opened ? named_[i].share : 0});
  }
  MutexLock lock(mutex_);
  state_ = std::move(state);
}

}  // namespace moestro::prefill
