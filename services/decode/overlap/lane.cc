#include "services/decode/overlap/lane.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/steady_seconds.h"

namespace moestro::decode {
namespace {

absl::Status InLayer(int64_t layer, const absl::Status& status) {
  return status.ok() ? status : Annotate(status, absl::StrFormat("layer %d", layer));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Lane>> Lane::Create(LaneShared& shared, int index, int64_t max_rows) {
  MOE_ASSIGN_OR_RETURN(PinnedExpertIo memory, PinnedExpertIo::Create(shared.device, shared.spec, max_rows));
  std::unique_ptr<Lane> lane(new Lane(shared, index, std::move(memory)));
  lane->reads_sums_ = shared.compute.ReadSums(index, lane->host_.sums, max_rows);
  lane->hands_over_ = shared.compute.HandsOver(index, lane->host_, max_rows);
  MOE_RETURN_IF_ERROR(lane->NewStream());
  return lane;
}

absl::Status Lane::NewStream() {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<device::Stream> stream,
                       shared_.device.NewStream(index_ == 0 ? "decode A" : "decode B"));
  MOE_ASSIGN_OR_RETURN(ready_, shared_.device.NewEvent());
  stream_ = std::move(stream);
  return absl::OkStatus();
}

absl::Status Lane::Renew(const absl::Status& failure) {
  (void)stream_->Synchronize();  // its status has been seen
  const absl::Status renewed = NewStream();
  if (renewed.ok()) return failure;
  return absl::UnavailableError(absl::StrFormat("%s; the device is lost: %s", failure.message(), renewed.message()));
}

absl::Status Lane::Run(int64_t first_row, const model::CheckedBatch& batch,
                       absl::FunctionRef<absl::Status()> interrupted) {
  shared_.compute.Begin(index_, first_row, batch);
  absl::Status status = RunLayers(first_row, batch.size(), interrupted);
  if (!status.ok()) shared_.failed = true;
  shared_.device_order.Leave(index_);
  shared_.expert_order.Leave(index_);
  return status.ok() ? status : Renew(status);
}

absl::Status Lane::RunLayers(int64_t first_row, int64_t rows, absl::FunctionRef<absl::Status()> interrupted) {
  const weights::ModelSpec& spec = shared_.spec;
  MOE_RETURN_IF_ERROR(shared_.compute.Embed(index_, *stream_));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    MOE_RETURN_IF_ERROR(interrupted());
    if (shared_.failed) return absl::CancelledError("the other half of the step has failed");
    MOE_RETURN_IF_ERROR(InLayer(layer, LaunchLayer(layer, rows)));
    if (!spec.IsMoeLayer(layer)) continue;
    MOE_RETURN_IF_ERROR(InLayer(layer, AwaitChoices()));
    shared_.expert_order.Take(index_);
    if (shared_.on_routing) {
      shared_.on_routing({.layer = layer,
                          .first_row = shared_.first_row + first_row,
                          .choices = std::span(host_.choices, static_cast<size_t>(rows * spec.experts_per_token)),
                          .x = host_.x});
    }
    MOE_RETURN_IF_ERROR(InLayer(layer, shared_.experts.Run(layer, rows, host_)));
    shared_.expert_order.Pass(index_);
  }
  MOE_RETURN_IF_ERROR(LaunchLayer(spec.num_layers, rows));
  return ready_->Wait();
}

absl::Status Lane::AwaitChoices() {
  // A thread that asks again and again takes a core. While the other lane's experts are computed, these have all cores.
  const double end = SteadySeconds() + shared_.spin_seconds;
  while (hands_over_) {
    if (shared_.compute.IsHandedOver(index_)) return absl::OkStatus();
    if (!shared_.expert_order.IsNext(index_) || SteadySeconds() >= end) break;
    __builtin_ia32_pause();
  }
  MOE_RETURN_IF_ERROR(ready_->Wait());
  if (!hands_over_ || shared_.compute.IsHandedOver(index_)) return absl::OkStatus();
  return absl::InternalError("the device has done its work, and has not handed over choices");
}

absl::Status Lane::LaunchLayer(int64_t layer, int64_t rows) {
  const weights::ModelSpec& spec = shared_.spec;
  shared_.device_order.Take(index_);
  if (layer > 0 && spec.IsMoeLayer(layer - 1)) {
    MOE_RETURN_IF_ERROR(CopyToDevice(rows));
    MOE_RETURN_IF_ERROR(shared_.compute.Combine(index_, layer - 1, *stream_));
  }
  if (layer == spec.num_layers) {
    MOE_RETURN_IF_ERROR(stream_->Record(*ready_));
  } else {
    MOE_RETURN_IF_ERROR(shared_.compute.Attend(index_, layer, *stream_));
    if (spec.IsMoeLayer(layer)) {
      MOE_RETURN_IF_ERROR(CopyToHost(rows));
      MOE_RETURN_IF_ERROR(stream_->Record(*ready_));
      MOE_RETURN_IF_ERROR(shared_.compute.Shared(index_, layer, *stream_));
    }
  }
  shared_.device_order.Pass(index_);
  return absl::OkStatus();
}

absl::Status Lane::CopyToHost(int64_t rows) {
  if (hands_over_) return absl::OkStatus();
  const engine::ExpertIo from = shared_.compute.expert_io(index_);
  const auto copy = [&](auto* to, const auto* source, int64_t count) {
    return stream_->CopyToHost(reinterpret_cast<uint8_t*>(to), reinterpret_cast<const uint8_t*>(source),
                               count * static_cast<int64_t>(sizeof(*to)));
  };
  MOE_RETURN_IF_ERROR(copy(host_.x, from.x, rows * shared_.spec.hidden_size));
  return copy(host_.choices, from.choices, rows * shared_.spec.experts_per_token);
}

absl::Status Lane::CopyToDevice(int64_t rows) {
  if (reads_sums_) return absl::OkStatus();
  return stream_->CopyToDevice(reinterpret_cast<uint8_t*>(shared_.compute.expert_io(index_).sums),
                               reinterpret_cast<const uint8_t*>(host_.sums),
                               rows * shared_.spec.hidden_size * static_cast<int64_t>(sizeof(float)));
}

}  // namespace moestro::decode
