#include "common/engine/cuda/cuda_hot_compute.h"

#include <algorithm>
#include <array>
#include <functional>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/engine/cuda/feed_forward.h"

namespace moestro {
namespace {

// An expert has a tile for a row at the least.
int64_t MaxTiles(const ModelSpec& spec, int64_t max_rows) { return max_rows * spec.experts_per_token; }

}  // namespace

int64_t CudaHotCompute::PlanBytes(int64_t max_tiles) {
  const int64_t begins = CeilDiv(max_tiles, int64_t{cuda::kMaxMatrices}) + 1;
  return max_tiles * int64_t{sizeof(cuda::TokenTile)} + begins * int64_t{sizeof(int32_t)};
}

absl::StatusOr<std::unique_ptr<CudaHotCompute>> CudaHotCompute::Create(device::Device& device, const ModelSpec& spec,
                                                                       int64_t max_rows) {
  const int64_t tiles = MaxTiles(spec, max_rows), bytes = PlanBytes(tiles);
  MOE_ASSIGN_OR_RETURN(auto host_plan, device::PinnedBuffer<uint8_t>::Create(device, bytes));
  MOE_ASSIGN_OR_RETURN(device::Memory plan, device.Allocate(bytes, "tiles of cached experts"));
  const int64_t gated_bytes = tiles * cuda::InputStride(spec.moe_intermediate_size) * int64_t{sizeof(uint16_t)};
  MOE_ASSIGN_OR_RETURN(device::Memory gated, device.Allocate(gated_bytes, "activations of cached experts"));
  return std::unique_ptr<CudaHotCompute>(
      new CudaHotCompute(spec, tiles, std::move(host_plan), std::move(plan), std::move(gated)));
}

absl::Status CudaHotCompute::Run(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                                 device::Stream& stream) {
  cuda::TokenTile* const tiles = Tiles(host_plan_.get());
  int32_t* const begins = Begins(host_plan_.get());
  int32_t count = 0;
  for (int32_t i = 0; i < std::ssize(experts); ++i) {
    if (i % cuda::kMaxMatrices == 0) begins[i / cuda::kMaxMatrices] = count;
    const HotExpert& expert = experts[static_cast<size_t>(i)];
    const int64_t end = expert.begin + expert.count;
    for (int64_t row = expert.begin; row < end; row += cuda::kSmallTile) {
      MOE_CHECK(count < max_tiles_);
      tiles[count++] = {i, static_cast<int32_t>(row),
                        static_cast<int32_t>(std::min(end - row, int64_t{cuda::kSmallTile}))};
    }
  }
  begins[CeilDiv(std::ssize(experts), std::ptrdiff_t{cuda::kMaxMatrices})] = count;
  MOE_RETURN_IF_ERROR(stream.CopyToDevice(plan_.data(), host_plan_.get(), PlanBytes(max_tiles_)));
  const auto launch = [&](void* native) { return Launch(experts, x, outputs, native); };
  return stream.Launch({.name = "hot experts", .cost = {}, .run = std::ref(launch)});  // a GPU calls this at once
}

absl::Status CudaHotCompute::Launch(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                                    void* native) const {
  auto* const stream = static_cast<cuda::Stream>(native);
  const int32_t* const host_begins = Begins(host_plan_.get());
  const int32_t* const begins = Begins(plan_.data());
  auto* const gated = reinterpret_cast<uint16_t*>(gated_.data());
  for (size_t first = 0, group = 0; first < experts.size(); first += cuda::kMaxMatrices, ++group) {
    const auto together = experts.subspan(first, std::min<size_t>(cuda::kMaxMatrices, experts.size() - first));
    std::array<MlpWeights, cuda::kMaxMatrices> weights;
    std::ranges::transform(together, weights.begin(), &HotExpert::weights);
    MOE_RETURN_IF_ERROR(RunGroupedMlp(spec_, std::span(weights).first(together.size()),
                                      {.matrices = {},
                                       .first_group = static_cast<int32_t>(first),
                                       .tiles = Tiles(plan_.data()),
                                       .first_tile = begins + group,
                                       .end_tile = begins + group + 1,
                                       .max_tiles = host_begins[group + 1] - host_begins[group],
                                       .tile_tokens = cuda::kSmallTile},
                                      x, gated, outputs, stream));
  }
  return absl::OkStatus();
}

}  // namespace moestro
