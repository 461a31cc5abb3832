#include "common/engine/sim/sim_decode.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/device/sim/sim_device.h"

namespace moestro::engine {
namespace {

using device::KernelCost;

// Products of rows with weights that are read once, and multiplied as BF16.
KernelCost Products(const roofline::WeightCount& weights, int64_t rows, int64_t kernels) {
  return {.bf16_flops = 2 * weights.elements * static_cast<double>(rows),
          .memory_bytes = weights.bytes,
          .kernels = kernels};
}

absl::Status Launch(const KernelCost& cost, device::Stream& stream) {
  return stream.Launch({.name = "simulated", .cost = cost, .run = {}});
}

}  // namespace

void SimDecode::Begin(int lane, int64_t, const model::CheckedBatch& batch) {
  State& state = lanes_[static_cast<size_t>(lane)];
  state = {.rows = batch.size()};
  for (const model::EngineRow& row : batch.rows) state.visible += row.position + 1;
}

absl::Status SimDecode::Embed(int lane, device::Stream& stream) {
  return Launch(
      {.elementwise_bytes = static_cast<double>(Lane(lane).rows * spec_.hidden_size * 6), .kernels = launches_.embed},
      stream);
}

absl::Status SimDecode::Attend(int lane, int64_t layer, device::Stream& stream) {
  const roofline::LayerCount& count = count_.layers[static_cast<size_t>(layer)];
  const bool moe = spec_.IsMoeLayer(layer);
  const int64_t left_out = layer > 0 && spec_.IsMoeLayer(layer - 1) ? launches_.left_out : 0;
  KernelCost products =
      Products(count.attention, Lane(lane).rows, (moe ? launches_.attend_moe : launches_.attend_dense) - left_out);
  products.memory_bytes += count.router.bytes;
  MOE_RETURN_IF_ERROR(Launch(products, stream));
  const int64_t window = spec_.WindowOf(layer), all = Lane(lane).visible;
  const auto visible = static_cast<double>(window == 0 ? all : std::min(all, Lane(lane).rows * window));
  MOE_RETURN_IF_ERROR(Launch({.attention_flops = roofline::AttentionFlops(spec_, model::MlaForm::kAbsorbed, visible),
                              .memory_bytes = roofline::KvBytes(spec_, visible),
                              .kernels = 0},
                             stream));
  if (!moe) return Launch(Products(count.dense, Lane(lane).rows, 0), stream);
  const int64_t row_bytes = spec_.hidden_size * int64_t{sizeof(uint16_t)} +
                            spec_.experts_per_token * int64_t{sizeof(model::ExpertChoice)} + int64_t{sizeof(uint32_t)};
  // A flag follows when the rest has arrived.
  MOE_RETURN_IF_ERROR(
      Launch({.kernels = 0, .host_bytes = static_cast<double>(Lane(lane).rows * row_bytes), .bus_trips = 1}, stream));
  return written_[static_cast<size_t>(lane)] ? stream.Record(*written_[static_cast<size_t>(lane)]) : absl::OkStatus();
}

bool SimDecode::HandsOver(int lane, const ExpertIo&, int64_t) {
  absl::StatusOr<std::unique_ptr<device::Event>> event = device_.NewEvent();
  if (!event.ok()) return false;
  written_[static_cast<size_t>(lane)] = *std::move(event);
  return true;
}

// The thread that asks waits until the flag has arrived, too.
bool SimDecode::IsHandedOver(int lane) {
  device_.AdvanceTo(written_[static_cast<size_t>(lane)]->Seconds() + device::kBusTripSeconds / 2);
  return true;
}

absl::Status SimDecode::Shared(int lane, int64_t layer, device::Stream& stream) {
  return Launch(Products(count_.layers[static_cast<size_t>(layer)].dense, Lane(lane).rows, launches_.shared), stream);
}

absl::Status SimDecode::Combine(int lane, int64_t, device::Stream& stream) {
  const int64_t elements = Lane(lane).rows * spec_.hidden_size;
  return Launch({.elementwise_bytes = static_cast<double>(elements * 12),
                 .kernels = launches_.combine,
                 .host_bytes = static_cast<double>(elements * int64_t{sizeof(float)}),
                 .bus_trips = 1},
                stream);
}

absl::Status SimDecode::Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                               absl::FunctionRef<void(int64_t, std::span<const float>)>) {
  const int64_t kernels = launches_.head + std::ssize(rows) * launches_.head_row;
  MOE_RETURN_IF_ERROR(Launch({.memory_bytes = count_.head.bytes, .kernels = kernels}, stream));
  return stream.Synchronize();
}

}  // namespace moestro::engine
