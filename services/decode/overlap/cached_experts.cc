#include "services/decode/overlap/cached_experts.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/device/staging.h"
#include "common/model/schema.h"

namespace moestro::decode {
namespace {

constexpr int64_t kArrayAlignment = 64;  // kernels read whole cache lines

int64_t ImageBytes(model::MlpWeights mlp) {
  int64_t bytes = 0;
  model::VisitArrays(mlp, [&](auto&, int64_t array) { bytes += RoundUp(array, kArrayAlignment); });
  return bytes;
}

// The plan's rows of an expert that it has.
const model::ExpertRows& RowsOf(const model::ExpertPlan& plan, int32_t expert) {
  return *std::ranges::lower_bound(plan.experts, expert, {}, &model::ExpertRows::expert);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CachedExperts>> CachedExperts::Create(const weights::ModelSpec& spec,
                                                                     const model::ModelWeights& weights,
                                                                     const CpuKernels& kernels, CpuExperts& cpu,
                                                                     engine::DecodeCompute& compute,
                                                                     device::Device& device, const Options& options) {
  const int64_t layers = spec.num_moe_layers();
  int64_t bytes = 0;  // of the largest expert: layers may have other types, as in files of Q4_K_M
  for (int64_t i = 0; i < layers; ++i) {
    bytes = std::max(bytes, ImageBytes(weights.layers[spec.MoeLayer(i)].feed_forward.experts.front()));
  }
  const int64_t slots = experts::CacheSlots(options.budget_bytes, bytes, layers, spec.num_experts);
  if (slots == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes do not hold an expert of %d bytes of each of %d layers",
                                                      options.budget_bytes, bytes, layers));
  }
  std::unique_ptr<CachedExperts> experts(
      new CachedExperts(spec, weights, kernels, cpu, compute, device, options, slots, bytes));
  MOE_RETURN_IF_ERROR(experts->Allocate());
  MOE_RETURN_IF_ERROR(experts->NewStreams());
  return experts;
}

CachedExperts::CachedExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights,
                             const CpuKernels& kernels, CpuExperts& cpu, engine::DecodeCompute& compute,
                             device::Device& device, const Options& options, int64_t slots, int64_t slot_bytes)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      cpu_(cpu),
      compute_(compute),
      device_(device),
      options_(options),
      slots_(slots),
      slot_bytes_(slot_bytes),
      cache_({.moe_layers = spec.num_moe_layers(),
              .num_experts = spec.num_experts,
              .slots = slots,
              .loads_per_pass = options.loads_per_pass},
             [](int64_t experts) { return std::make_unique<experts::LruPolicy>(experts); }) {
  hot_experts_.reserve(static_cast<size_t>(slots));
}

absl::Status CachedExperts::Allocate() {
  const int64_t numbers = options_.max_rows * spec_.experts_per_token * spec_.hidden_size;
  const int64_t layers = spec_.num_moe_layers();
  MOE_ASSIGN_OR_RETURN(device_x_, device_.Allocate(2 * numbers, "inputs of cached experts"));
  MOE_ASSIGN_OR_RETURN(device_outputs_, device_.Allocate(4 * numbers, "outputs of cached experts"));
  MOE_ASSIGN_OR_RETURN(device_experts_, device_.Allocate(layers * slots_ * slot_bytes_, "cached experts"));
  MOE_ASSIGN_OR_RETURN(x_, device::PinnedBuffer<uint16_t>::Create(device_, numbers));
  MOE_ASSIGN_OR_RETURN(outputs_, device::PinnedBuffer<float>::Create(device_, numbers));
  all_slots_.resize(static_cast<size_t>(layers * slots_));
  for (Slot& slot : all_slots_) {
    MOE_ASSIGN_OR_RETURN(slot.loaded, device_.NewEvent());
  }
  MOE_ASSIGN_OR_RETURN(computed_, device_.NewEvent());
  return absl::OkStatus();
}

absl::Status CachedExperts::NewStreams() {
  for (device::Stream* stream : std::array<device::Stream*, 2>{compute_stream_.get(), load_stream_.get()}) {
    if (stream != nullptr) (void)stream->Synchronize();  // its status has been seen
  }
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<device::Stream> compute, device_.NewStream("hot experts"));
  MOE_ASSIGN_OR_RETURN(load_stream_, device::StagedStream::Create(device_, "expert loads"));
  compute_stream_ = std::move(compute);
  return absl::OkStatus();
}

CachedExperts::Slot& CachedExperts::SlotOf(int64_t layer, int64_t slot) {
  return all_slots_[static_cast<size_t>(spec_.MoeLayersBelow(layer) * slots_ + slot)];
}

absl::Status CachedExperts::Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) {
  if (count > options_.max_rows) return cpu_.Run(layer, count, rows);
  const auto choices = std::span(rows.choices, static_cast<size_t>(count * spec_.experts_per_token));
  plan_.Sort(choices, spec_.experts_per_token, spec_.num_experts);
  const experts::ExpertCache::Pass& pass = cache_.Take(spec_.MoeLayersBelow(layer), choices);
  hits_ += std::ssize(pass.hits);
  misses_ += std::ssize(pass.misses);
  std::fill_n(rows.sums, count * spec_.hidden_size, 0.0f);
  absl::Status status = RunWithHits(layer, pass, rows);
  for (const experts::ExpertCache::Load& load : pass.loads) {
    if (status.ok()) status = Load(layer, load);
  }
  if (status.ok()) return status;
  // What the slots hold is not known any more.
  cache_.Clear();
  MOE_RETURN_IF_ERROR(NewStreams());
  return status;
}

absl::Status CachedExperts::RunWithHits(int64_t layer, const experts::ExpertCache::Pass& pass,
                                        const engine::ExpertIo& rows) {
  if (!pass.hits.empty()) MOE_RETURN_IF_ERROR(LaunchHits(layer, pass, rows));
  int64_t next = 0;  // expert
  const float* output = outputs_->get();
  for (const experts::ExpertCache::Hit& hit : pass.hits) {
    cpu_.RunSlice(layer, {next, hit.use.expert}, plan_, rows);
    next = hit.use.expert + 1;
    MOE_RETURN_IF_ERROR(computed_->Wait());
    const model::ExpertRows& hit_rows = RowsOf(plan_, hit.use.expert);
    for (int64_t i = hit_rows.begin; i < hit_rows.begin + hit_rows.count; ++i, output += spec_.hidden_size) {
      const model::RoutedRow& routed = plan_.routed[static_cast<size_t>(i)];
      kernels_.axpy(routed.weight, output, spec_.hidden_size, rows.sums + routed.row * spec_.hidden_size);
    }
  }
  cpu_.RunSlice(layer, {next, spec_.num_experts}, plan_, rows);
  return absl::OkStatus();
}

absl::Status CachedExperts::LaunchHits(int64_t layer, const experts::ExpertCache::Pass& pass,
                                       const engine::ExpertIo& rows) {
  hot_experts_.clear();
  int64_t count = 0;
  for (const experts::ExpertCache::Hit& hit : pass.hits) {
    Slot& slot = SlotOf(layer, hit.slot);
    MOE_RETURN_IF_ERROR(compute_stream_->WaitFor(*slot.loaded));
    const model::ExpertRows& hit_rows = RowsOf(plan_, hit.use.expert);
    hot_experts_.push_back({slot.weights, count, hit_rows.count});
    for (int64_t i = hit_rows.begin; i < hit_rows.begin + hit_rows.count; ++i, ++count) {
      std::memcpy(x_->get() + count * spec_.hidden_size,
                  rows.x + plan_.routed[static_cast<size_t>(i)].row * spec_.hidden_size,
                  static_cast<size_t>(spec_.hidden_size) * sizeof(uint16_t));
    }
  }
  auto* const device_x = reinterpret_cast<uint16_t*>(device_x_.data());
  auto* const device_outputs = reinterpret_cast<float*>(device_outputs_.data());
  MOE_RETURN_IF_ERROR(compute_stream_->CopyToDevice(device_x_.data(), reinterpret_cast<const uint8_t*>(x_->get()),
                                                    2 * count * spec_.hidden_size));
  MOE_RETURN_IF_ERROR(compute_.HotExperts(hot_experts_, device_x, device_outputs, *compute_stream_));
  MOE_RETURN_IF_ERROR(compute_stream_->CopyToHost(reinterpret_cast<uint8_t*>(outputs_->get()), device_outputs_.data(),
                                                  4 * count * spec_.hidden_size));
  return compute_stream_->Record(*computed_);
}

absl::Status CachedExperts::Load(int64_t layer, const experts::ExpertCache::Load& load) {
  Slot& slot = SlotOf(layer, load.slot);
  slot.weights = weights_.layers[layer].feed_forward.experts[load.expert];
  const int64_t index = spec_.MoeLayersBelow(layer) * slots_ + load.slot;
  uint8_t* to = device_experts_.data() + index * slot_bytes_;
  absl::Status status;
  model::VisitArrays(slot.weights, [&](auto& array, int64_t bytes) {
    if (status.ok()) status = load_stream_->CopyToDevice(to, reinterpret_cast<const uint8_t*>(array), bytes);
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(to);
    to += RoundUp(bytes, kArrayAlignment);
  });
  MOE_RETURN_IF_ERROR(status);
  return load_stream_->Record(*slot.loaded);
}

}  // namespace moestro::decode
