#include "common/engine/cuda/attention.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/engine/weight_image.h"

namespace moestro {
namespace {

// y = W x of a tile's rows.
absl::Status Project(const CudaRows& rows, const PackedMatrix& w, IndexRange tile, float* y, cuda::Stream stream) {
  return LaunchStatus(
      cuda::LaunchLinear(ShapeOf(w, rows.X(tile), rows.x_stride(), y, w.rows), PointersOf(w), tile.size(), stream));
}

// x = norm(x) of every head of some rows, [rows, heads, v_head_dim].
absl::Status NormHeads(const ModelSpec& spec, const float* weight, int64_t rows, int64_t heads, float* x,
                       cuda::Stream stream) {
  return LaunchStatus(cuda::LaunchRmsNorm({.x = x,
                                           .x_stride = spec.v_head_dim,
                                           .weight = weight,
                                           .rows = rows * heads,
                                           .n = spec.v_head_dim,
                                           .eps = static_cast<float>(spec.rms_norm_eps),
                                           .out = x},
                                          stream));
}

// Calls store(rows, position of the first in the cache) for each stripe's rows in a tile.
template <typename Store>
absl::Status ForStripes(const CudaRows& rows, IndexRange tile, const Store& store) {
  for (const CudaStripe& stripe : rows.stripes) {
    const IndexRange part{std::max(tile.begin, stripe.rows.begin), std::min(tile.end, stripe.rows.end)};
    if (part.size() <= 0) continue;
    MOE_RETURN_IF_ERROR(store(part, stripe.position + part.begin - stripe.rows.begin - rows.first_token));
  }
  return absl::OkStatus();
}

// MLA: normalised latents and rotated keys of a tile's rows.
absl::Status StoreLatents(const CudaRows& rows, const AttentionWeights& w, IndexRange tile, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  float* const kv_a = rows.activations.projected;
  MOE_RETURN_IF_ERROR(Project(rows, w.kv_a, tile, kv_a, stream));
  return ForStripes(rows, tile, [&](IndexRange part, int64_t position) {
    return LaunchStatus(cuda::LaunchStoreLatent({.kv_a = kv_a + (part.begin - tile.begin) * spec.kv_dim(),
                                                 .weight = w.kv_a_norm,
                                                 .rows = part.size(),
                                                 .latent = spec.kv_lora_rank,
                                                 .eps = static_cast<float>(spec.lora_norm_eps),
                                                 .angles = rows.Angles(part),
                                                 .position = position,
                                                 .pages = rows.cache,
                                                 .positions = rows.positions,
                                                 .first_page = rows.first_page,
                                                 .copy = rows.entries},
                                                stream));
  });
}

// Grouped queries: keys and values of a tile's rows.
absl::Status StoreKeysValues(const CudaRows& rows, const AttentionWeights& w, IndexRange tile, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t width = w.k.rows;
  float* const keys = rows.activations.projected;
  float* const values = keys + tile.size() * width;
  MOE_RETURN_IF_ERROR(Project(rows, w.k, tile, keys, stream));
  MOE_RETURN_IF_ERROR(Project(rows, w.v, tile, values, stream));
  MOE_RETURN_IF_ERROR(NormHeads(spec, w.k_norm, tile.size(), spec.num_kv_heads, keys, stream));
  return ForStripes(rows, tile, [&](IndexRange part, int64_t position) {
    const int64_t first = (part.begin - tile.begin) * width;
    return LaunchStatus(cuda::LaunchStoreKeysValues({.keys = keys + first,
                                                     .values = values + first,
                                                     .rows = part.size(),
                                                     .kv_heads = spec.num_kv_heads,
                                                     .head_dim = spec.v_head_dim,
                                                     .angles = rows.Angles(part),
                                                     .position = position,
                                                     .pages = rows.cache,
                                                     .positions = rows.positions,
                                                     .first_page = rows.first_page,
                                                     .copy = rows.entries},
                                                    stream));
  });
}

}  // namespace

absl::Status ProjectDown(const CudaRows& rows, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const CudaActivations& a = rows.activations;
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    MOE_RETURN_IF_ERROR(NormResidual(rows, w.input_norm, tile, nullptr, stream));
    MOE_RETURN_IF_ERROR(spec.attention_kind() == AttentionKind::kGroupedQueries ? StoreKeysValues(rows, w, tile, stream)
                                                                                : StoreLatents(rows, w, tile, stream));
    if (spec.q_lora_rank == 0) continue;
    MOE_RETURN_IF_ERROR(Project(rows, w.q_a, tile, a.projected, stream));
    const int64_t stride = CudaStride(spec.q_lora_rank);
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRmsNorm({.x = a.projected,
                                                          .x_stride = spec.q_lora_rank,
                                                          .weight = w.q_a_norm,
                                                          .rows = tile.size(),
                                                          .n = spec.q_lora_rank,
                                                          .eps = static_cast<float>(spec.lora_norm_eps),
                                                          .out = nullptr,
                                                          .out_bf16 = a.query_input + tile.begin * stride,
                                                          .out_bf16_stride = stride},
                                                         stream)));
  }
  return absl::OkStatus();
}

absl::Status ProjectQueries(const CudaRows& rows, const AttentionWeights& w, IndexRange heads, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const CudaActivations& a = rows.activations;
  const int64_t width = heads.size() * spec.qk_head_dim();
  const PackedMatrix slice = SliceRows(w.q_b, heads.begin * spec.qk_head_dim(), width);
  const uint16_t* input = spec.q_lora_rank > 0 ? a.query_input : a.x;
  const int64_t stride = CudaStride(w.q_b.cols);
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    MOE_RETURN_IF_ERROR(
        LaunchStatus(cuda::LaunchLinear(ShapeOf(slice, input + tile.begin * stride, stride, a.projected, width),
                                        PointersOf(slice), tile.size(), stream)));
    if (w.q_norm != nullptr) {
      MOE_RETURN_IF_ERROR(NormHeads(spec, w.q_norm, tile.size(), heads.size(), a.projected, stream));
    }
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRotateHeads(a.projected, tile.size(), heads.size(), spec.qk_head_dim(),
                                                             spec.qk_nope_head_dim, rows.Angles(tile),
                                                             a.queries + tile.begin * width, stream)));
  }
  return absl::OkStatus();
}

absl::Status AddOutput(const CudaRows& rows, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  return LaunchStatus(
      cuda::LaunchLinear(ShapeOf(w.o, rows.activations.attended, CudaStride(spec.num_heads * spec.v_head_dim),
                                 rows.residual, spec.hidden_size, cuda::LinearOutput::kAddF32),
                         PointersOf(w.o), rows.rows, stream));
}

}  // namespace moestro
