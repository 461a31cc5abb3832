#include "services/decode/overlap/device_experts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/device/staging.h"
#include "common/model/schema.h"

namespace moestro::decode {
namespace {

constexpr int64_t kArrayAlignment = 64;  // kernels read whole cache lines

}  // namespace

int64_t DeviceExpertBytes(const weights::ModelSpec& spec, const model::ModelWeights& weights) {
  int64_t most = 0;
  for (int64_t i = 0; i < spec.num_moe_layers(); ++i) {
    model::MlpWeights mlp = weights.layers[spec.MoeLayer(i)].feed_forward.experts.front();
    int64_t bytes = 0;
    model::VisitArrays(mlp, [&](auto&, int64_t array) { bytes += RoundUp(array, kArrayAlignment); });
    most = std::max(most, bytes);
  }
  return most;
}

absl::StatusOr<std::unique_ptr<DeviceExperts>> DeviceExperts::Create(const weights::ModelSpec& spec,
                                                                     const model::ModelWeights& weights,
                                                                     engine::DecodeCompute& compute,
                                                                     device::Device& device, const Options& options) {
  std::unique_ptr<DeviceExperts> experts(new DeviceExperts(spec, weights, compute, device));
  MOE_RETURN_IF_ERROR(experts->Allocate(options));
  MOE_RETURN_IF_ERROR(experts->Renew());
  return experts;
}

absl::Status DeviceExperts::Allocate(const Options& options) {
  const int64_t numbers = options.routed_rows * spec_.hidden_size;
  MOE_ASSIGN_OR_RETURN(device_inputs_, device_.Allocate(2 * numbers, "inputs of cached experts"));
  MOE_ASSIGN_OR_RETURN(device_outputs_, device_.Allocate(4 * numbers, "outputs of cached experts"));
  MOE_ASSIGN_OR_RETURN(memory_, device_.Allocate(options.slots * slot_bytes_, "cached experts"));
  MOE_ASSIGN_OR_RETURN(inputs_, device::PinnedBuffer<uint16_t>::Create(device_, numbers));
  MOE_ASSIGN_OR_RETURN(outputs_, device::PinnedBuffer<float>::Create(device_, numbers));
  slots_.resize(static_cast<size_t>(options.slots));
  for (Slot& slot : slots_) {
    MOE_ASSIGN_OR_RETURN(slot.loaded, device_.NewEvent());
  }
  MOE_ASSIGN_OR_RETURN(copied_, device_.NewEvent());
  MOE_ASSIGN_OR_RETURN(computed_, device_.NewEvent());
  hot_.reserve(static_cast<size_t>(spec_.num_experts));
  return absl::OkStatus();
}

absl::Status DeviceExperts::Synchronize() {
  absl::Status status;
  for (device::Stream* stream : std::array<device::Stream*, 2>{compute_stream_.get(), load_stream_.get()}) {
    if (stream != nullptr) status.Update(stream->Synchronize());
  }
  return status;
}

absl::Status DeviceExperts::Renew() {
  (void)Synchronize();  // its status has been seen
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<device::Stream> compute, device_.NewStream("hot experts"));
  MOE_ASSIGN_OR_RETURN(load_stream_, device::StagedStream::Create(device_, "expert loads"));
  compute_stream_ = std::move(compute);
  return absl::OkStatus();
}

absl::Status DeviceExperts::CopyInputs(int64_t rows) {
  MOE_RETURN_IF_ERROR(compute_stream_->CopyToDevice(
      device_inputs_.data(), reinterpret_cast<const uint8_t*>(inputs_->get()), 2 * rows * spec_.hidden_size));
  MOE_RETURN_IF_ERROR(compute_stream_->Record(*copied_));
  return load_stream_->WaitFor(*copied_);
}

absl::Status DeviceExperts::Load(int64_t layer, int32_t expert, int64_t slot, Part part) {
  Slot& to_slot = slots_[static_cast<size_t>(slot)];
  to_slot.weights = weights_.layers[layer].feed_forward.experts[static_cast<size_t>(expert)];
  uint8_t* const to = memory_.data() + slot * slot_bytes_;
  // Parts meet at the same byte. Of the last bytes an expert may have none.
  const auto byte_at = [&](double share) {
    return static_cast<int64_t>(share * static_cast<double>(slot_bytes_)) / kArrayAlignment * kArrayAlignment;
  };
  const int64_t begin = byte_at(part.begin), end = part.end < 1 ? byte_at(part.end) : slot_bytes_;
  int64_t at = 0;
  absl::Status status;
  model::VisitArrays(to_slot.weights, [&](auto& array, int64_t bytes) {
    const int64_t first = std::clamp<int64_t>(begin - at, 0, bytes), last = std::clamp<int64_t>(end - at, 0, bytes);
    if (status.ok() && first < last) {
      const auto* from = reinterpret_cast<const uint8_t*>(array);
      status = load_stream_->CopyToDevice(to + at + first, from + first, last - first);
    }
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(to + at);
    at += RoundUp(bytes, kArrayAlignment);
  });
  MOE_RETURN_IF_ERROR(status);
  return part.end < 1 ? absl::OkStatus() : load_stream_->Record(*to_slot.loaded);
}

absl::Status DeviceExperts::Run(std::span<const Task> tasks, int64_t first_output) {
  hot_.clear();
  int64_t rows = 0;
  for (const Task& task : tasks) {
    const Slot& slot = slots_[static_cast<size_t>(task.slot)];
    if (!task.is_loading) MOE_RETURN_IF_ERROR(compute_stream_->WaitFor(*slot.loaded));
    hot_.push_back({slot.weights, rows, task.rows, task.is_loading ? slot.loaded.get() : nullptr});
    rows += task.rows;
  }
  auto* const device_inputs = reinterpret_cast<uint16_t*>(device_inputs_.data());
  auto* const device_outputs = reinterpret_cast<float*>(device_outputs_.data());
  MOE_RETURN_IF_ERROR(compute_.HotExperts(hot_, device_inputs, device_outputs, *compute_stream_));
  MOE_RETURN_IF_ERROR(
      compute_stream_->CopyToHost(reinterpret_cast<uint8_t*>(outputs_->get() + first_output * spec_.hidden_size),
                                  device_outputs_.data(), 4 * rows * spec_.hidden_size));
  return compute_stream_->Record(*computed_);
}

}  // namespace moestro::decode
