// What the launches of a pass work with.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/base/math.h"
#include "common/kernels/cuda/call.h"
#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/linear.h"
#include "common/kernels/cuda/stream.h"
#include "common/model/binding.h"
#include "services/prefill/stream/cuda/activations.h"

namespace moestro {

// Consecutive rows at consecutive positions.
struct CudaStripe {
  IndexRange rows;
  int64_t position = 0;  // of the first

  int64_t end() const { return position + rows.size(); }
};

struct CudaPass {
  const ModelSpec& spec;
  const CudaActivations& activations;
  int64_t rows = 0;
  std::array<CudaStripe, 2> stripes;  // all rows; one device has one stripe
  int64_t first_token = 0;            // of a KV block, none of the rows is before
  uint16_t* latents = nullptr;        // of the layer, BF16 [.., kv_dim]: the tokens from first_token on

  int64_t tiles() const { return CeilDiv(rows, activations.tile_rows); }
  IndexRange Tile(int64_t index) const {
    return {index * activations.tile_rows, std::min(rows, (index + 1) * activations.tile_rows)};
  }
  int64_t hidden_stride() const { return CudaStride(spec.hidden_size); }
  cuda::RopeAngles Angles(IndexRange tile) const {
    const int64_t pairs = spec.qk_rope_head_dim / 2;
    return {activations.cosine + tile.begin * pairs, activations.sine + tile.begin * pairs, 2 * pairs,
            spec.has_grouped_queries() ? cuda::RopePairs::kHalves : cuda::RopePairs::kAdjacent};
  }
};

using cuda::LaunchStatus;
using cuda::PointersOf;
using cuda::ShapeOf;

// normed_narrow = norm(residual) of some rows, and in F32 to `out` if that is not null.
inline absl::Status NormResidual(const CudaPass& pass, const float* weight, IndexRange rows, float* out,
                                 cuda::Stream stream) {
  const CudaActivations& a = pass.activations;
  return LaunchStatus(cuda::LaunchRmsNorm({.x = a.residual + rows.begin * pass.spec.hidden_size,
                                           .x_stride = pass.spec.hidden_size,
                                           .weight = weight,
                                           .rows = rows.size(),
                                           .n = pass.spec.hidden_size,
                                           .eps = static_cast<float>(pass.spec.rms_norm_eps),
                                           .out = out,
                                           .out_bf16 = a.normed_narrow + rows.begin * pass.hidden_stride(),
                                           .out_bf16_stride = pass.hidden_stride()},
                                          stream));
}

}  // namespace moestro
