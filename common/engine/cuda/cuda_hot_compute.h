// Routed experts that the device holds, by the kernels of common/kernels/cuda: weights that lie together in groups of
// up to cuda::kMaxMatrices go through one launch.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/decode_compute.h"
#include "common/kernels/cuda/linear.h"

namespace moestro {

class CudaHotCompute final : public HotCompute {
 public:
  // max_rows: of a step. Device and spec outlive it.
  static absl::StatusOr<std::unique_ptr<CudaHotCompute>> Create(device::Device& device, const ModelSpec& spec,
                                                                int64_t max_rows);
  absl::Status Run(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                   device::Stream& stream) override;

 private:
  CudaHotCompute(const ModelSpec& spec, int64_t max_tiles, device::PinnedBuffer<uint8_t> host_plan, device::Memory plan,
                 device::Memory gated)
      : spec_(spec),
        max_tiles_(max_tiles),
        host_plan_(std::move(host_plan)),
        plan_(std::move(plan)),
        gated_(std::move(gated)) {}
  // How rows are cut into tiles: all tiles, then where those of each launch's experts begin.
  static int64_t PlanBytes(int64_t max_tiles);
  int32_t* Begins(uint8_t* plan) const { return reinterpret_cast<int32_t*>(Tiles(plan) + max_tiles_); }
  static cuda::TokenTile* Tiles(uint8_t* plan) { return reinterpret_cast<cuda::TokenTile*>(plan); }
  absl::Status Launch(std::span<const HotExpert> experts, const uint16_t* x, float* outputs, void* native) const;

  const ModelSpec& spec_;
  const int64_t max_tiles_;
  device::PinnedBuffer<uint8_t> host_plan_;
  device::Memory plan_;
  device::Memory gated_;  // BF16 [max_rows * experts_per_token, InputStride(moe_intermediate_size)]
};

}  // namespace moestro
