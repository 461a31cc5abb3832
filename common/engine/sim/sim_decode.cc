#include "common/engine/sim/sim_decode.h"

#include <algorithm>

#include "common/base/status.h"

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
  return moe ? absl::OkStatus() : Launch(Products(count.dense, Lane(lane).rows, 0), stream);
}

absl::Status SimDecode::Shared(int lane, int64_t layer, device::Stream& stream) {
  return Launch(Products(count_.layers[static_cast<size_t>(layer)].dense, Lane(lane).rows, launches_.shared), stream);
}

absl::Status SimDecode::Combine(int lane, int64_t, device::Stream& stream) {
  return Launch({.elementwise_bytes = static_cast<double>(Lane(lane).rows * spec_.hidden_size * 16),
                 .kernels = launches_.combine},
                stream);
}

absl::Status SimDecode::Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                               absl::FunctionRef<void(int64_t, std::span<const float>)>) {
  const int64_t kernels = launches_.head + std::ssize(rows) * launches_.head_row;
  MOE_RETURN_IF_ERROR(Launch({.memory_bytes = count_.head.bytes, .kernels = kernels}, stream));
  return stream.Synchronize();
}

}  // namespace moestro::engine
