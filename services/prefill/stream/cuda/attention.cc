#include "services/prefill/stream/cuda/attention.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/kernels/cuda/attention.h"
#include "common/model/rope.h"
#include "services/prefill/stream/modules.h"

namespace moestro {
namespace {

// Where the rows of a tile go in the cache of the pass: calls store(rows, position of the first) for each stripe.
template <typename Store>
absl::Status ForStripes(const CudaPass& pass, IndexRange tile, const Store& store) {
  for (const CudaStripe& stripe : pass.stripes) {
    const IndexRange rows{std::max(tile.begin, stripe.rows.begin), std::min(tile.end, stripe.rows.end)};
    if (rows.size() <= 0) continue;
    MOE_RETURN_IF_ERROR(store(rows, stripe.position + rows.begin - stripe.rows.begin - pass.first_token));
  }
  return absl::OkStatus();
}

cuda::KvPagesView CacheOf(const CudaPass& pass) {
  return {.pages = reinterpret_cast<uint8_t*>(pass.latents),
          .list = nullptr,
          .page_bytes = cuda::kKvBlock * pass.spec.kv_dim() * static_cast<int64_t>(sizeof(uint16_t)),
          .layer_offset = 0,
          .page_tokens = cuda::kKvBlock,
          .kv_dim = pass.spec.kv_dim()};
}

// Normalised latent and rotated key of a tile's rows, from kv_a's outputs.
absl::Status StoreLatents(const CudaPass& pass, const AttentionWeights& w, IndexRange tile, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  return ForStripes(pass, tile, [&](IndexRange rows, int64_t position) {
    return LaunchStatus(
        cuda::LaunchStoreLatent({.kv_a = pass.activations.projected + (rows.begin - tile.begin) * spec.kv_dim(),
                                 .weight = w.kv_a_norm,
                                 .rows = rows.size(),
                                 .latent = spec.kv_lora_rank,
                                 .eps = static_cast<float>(spec.lora_norm_eps),
                                 .angles = pass.Angles(rows),
                                 .position = position,
                                 .pages = CacheOf(pass)},
                                stream));
  });
}

// x = norm(x) of every head of some rows, [rows, heads, v_head_dim].
absl::Status NormHeads(const CudaPass& pass, const float* weight, int64_t rows, int64_t heads, float* x,
                       cuda::Stream stream) {
  return LaunchStatus(cuda::LaunchRmsNorm({.x = x,
                                           .x_stride = pass.spec.v_head_dim,
                                           .weight = weight,
                                           .rows = rows * heads,
                                           .n = pass.spec.v_head_dim,
                                           .eps = static_cast<float>(pass.spec.rms_norm_eps),
                                           .out = x},
                                          stream));
}

// Grouped queries: keys and values of a tile's rows, from their norm.
absl::Status StoreKeysValues(const CudaPass& pass, const AttentionWeights& w, IndexRange tile, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const uint16_t* x = pass.activations.normed_narrow + tile.begin * pass.hidden_stride();
  const int64_t width = w.k.rows;
  float* const keys = pass.activations.projected;
  float* const values = keys + tile.size() * width;
  for (const auto& [matrix, to] : {std::pair(&w.k, keys), std::pair(&w.v, values)}) {
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchLinear(ShapeOf(*matrix, x, pass.hidden_stride(), to, width),
                                                        PointersOf(*matrix), tile.size(), stream)));
  }
  MOE_RETURN_IF_ERROR(NormHeads(pass, w.k_norm, tile.size(), spec.num_kv_heads, keys, stream));
  return ForStripes(pass, tile, [&](IndexRange rows, int64_t position) {
    const int64_t first = (rows.begin - tile.begin) * width;
    return LaunchStatus(cuda::LaunchStoreKeysValues({.keys = keys + first,
                                                     .values = values + first,
                                                     .rows = rows.size(),
                                                     .kv_heads = spec.num_kv_heads,
                                                     .head_dim = spec.v_head_dim,
                                                     .angles = pass.Angles(rows),
                                                     .position = position,
                                                     .pages = CacheOf(pass)},
                                                    stream));
  });
}

// Keys and values of a part for some heads.
struct PartVectors {
  int64_t kv_heads = 0;
  cuda::KvVectors keys, shared_keys, values;
};

// MLA: expanded from the latents.
absl::StatusOr<PartVectors> Expand(const CudaPass& pass, const AttentionWeights& w, IndexRange heads,
                                   const KvPart& part, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  uint16_t* const expanded = pass.activations.expanded;
  const int64_t head = spec.qk_nope_head_dim + spec.v_head_dim, width = heads.size() * head;
  const PackedMatrix slice = SliceRows(w.kv_b, heads.begin * head, width);
  MOE_RETURN_IF_ERROR(LaunchStatus(
      cuda::LaunchLinear(ShapeOf(slice, part.latents, spec.kv_dim(), expanded, width, cuda::LinearOutput::kBf16),
                         PointersOf(slice), part.tokens, stream)));
  const cuda::KvVectors keys{expanded, nullptr, cuda::kKvBlock * width, width, head};
  cuda::KvVectors values = keys;
  values.data += spec.qk_nope_head_dim;
  const cuda::KvVectors shared{part.latents + spec.kv_lora_rank, nullptr, cuda::kKvBlock * spec.kv_dim(), spec.kv_dim(),
                               0};
  return PartVectors{heads.size(), keys, shared, values};
}

// Grouped queries: as they are cached. The heads are whole groups.
PartVectors Cached(const CudaPass& pass, IndexRange heads, const KvPart& part) {
  const ModelSpec& spec = pass.spec;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  const cuda::KvVectors keys{part.latents + heads.begin / group * spec.v_head_dim, nullptr,
                             cuda::kKvBlock * spec.kv_dim(), spec.kv_dim(), spec.v_head_dim};
  cuda::KvVectors values = keys;
  values.data += spec.num_kv_heads * spec.v_head_dim;
  return {heads.size() / group, keys, {}, values};
}

// What merging works with, of a stripe's rows and some heads.
cuda::MergeAttentionArgs MergeOf(const CudaPass& pass, IndexRange heads, IndexRange rows) {
  const CudaActivations& a = pass.activations;
  const int64_t value_dim = pass.spec.v_head_dim, first = rows.begin * heads.size();
  return {.rows = rows.size(),
          .heads = heads.size(),
          .value_dim = value_dim,
          .total = a.partial[0] + first * value_dim,
          .total_log_sum = a.log_sum[0] + first,
          .part = a.partial[1] + first * value_dim,
          .part_log_sum = a.log_sum[1] + first,
          .out = a.attended + rows.begin * pass.spec.num_heads * value_dim + heads.begin * value_dim,
          .out_stride = pass.spec.num_heads * value_dim};
}

}  // namespace

absl::Status ProjectDown(const CudaPass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  for (int64_t t = 0; t < pass.tiles(); ++t) {
    const IndexRange tile = pass.Tile(t);
    MOE_RETURN_IF_ERROR(NormResidual(pass, w.input_norm, tile, nullptr, stream));
    if (spec.has_grouped_queries()) {
      MOE_RETURN_IF_ERROR(StoreKeysValues(pass, w, tile, stream));
      continue;
    }
    const uint16_t* x = a.normed_narrow + tile.begin * pass.hidden_stride();
    MOE_RETURN_IF_ERROR(
        LaunchStatus(cuda::LaunchLinear(ShapeOf(w.kv_a, x, pass.hidden_stride(), a.projected, spec.kv_dim()),
                                        PointersOf(w.kv_a), tile.size(), stream)));
    MOE_RETURN_IF_ERROR(StoreLatents(pass, w, tile, stream));
    if (spec.q_lora_rank == 0) continue;
    MOE_RETURN_IF_ERROR(
        LaunchStatus(cuda::LaunchLinear(ShapeOf(w.q_a, x, pass.hidden_stride(), a.projected, spec.q_lora_rank),
                                        PointersOf(w.q_a), tile.size(), stream)));
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

absl::Status ProjectQueries(const CudaPass& pass, const AttentionWeights& w, IndexRange heads, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  const int64_t width = heads.size() * spec.qk_head_dim();
  const PackedMatrix slice = SliceRows(w.q_b, heads.begin * spec.qk_head_dim(), width);
  const uint16_t* input = spec.q_lora_rank > 0 ? a.query_input : a.normed_narrow;
  const int64_t stride = CudaStride(w.q_b.cols);
  for (int64_t t = 0; t < pass.tiles(); ++t) {
    const IndexRange tile = pass.Tile(t);
    MOE_RETURN_IF_ERROR(
        LaunchStatus(cuda::LaunchLinear(ShapeOf(slice, input + tile.begin * stride, stride, a.projected, width),
                                        PointersOf(slice), tile.size(), stream)));
    if (w.q_norm != nullptr) {
      MOE_RETURN_IF_ERROR(NormHeads(pass, w.q_norm, tile.size(), heads.size(), a.projected, stream));
    }
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRotateHeads(a.projected, tile.size(), heads.size(), spec.qk_head_dim(),
                                                             spec.qk_nope_head_dim, pass.Angles(tile),
                                                             a.queries + tile.begin * width, stream)));
  }
  return absl::OkStatus();
}

absl::Status Attend(const CudaPass& pass, const AttentionWeights& w, IndexRange heads, const KvPart& part,
                    cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  PartVectors vectors;
  if (spec.has_grouped_queries()) {
    vectors = Cached(pass, heads, part);
  } else {
    MOE_ASSIGN_OR_RETURN(vectors, Expand(pass, w, heads, part, stream));
  }
  for (const CudaStripe& stripe : pass.stripes) {
    // The first part sets what others add to, even where it has nothing for a stripe.
    if (!part.is_first && stripe.end() <= part.first_token) continue;
    cuda::MergeAttentionArgs merge = MergeOf(pass, heads, stripe.rows);
    cuda::PrefillAttentionArgs attention{.heads = heads.size(),
                                         .kv_heads = vectors.kv_heads,
                                         .key_dim = spec.qk_head_dim(),
                                         .value_dim = spec.v_head_dim,
                                         .scale = static_cast<float>(SoftmaxScale(spec)),
                                         .keys = vectors.keys,
                                         .shared_keys = vectors.shared_keys,
                                         .values = vectors.values,
                                         .position = stripe.position,
                                         .rows = stripe.rows.size(),
                                         .queries = a.queries + stripe.rows.begin * heads.size() * spec.qk_head_dim(),
                                         .query_stride = heads.size() * spec.qk_head_dim(),
                                         .first_token = part.first_token,
                                         .tokens = part.tokens};
    if (part.is_first && part.is_last) {
      attention.out = merge.out;
      attention.out_stride = merge.out_stride;
    } else {
      const int buffer = part.is_first ? 0 : 1;  // the total, or what is added to it
      const int64_t first = stripe.rows.begin * heads.size();
      attention.partial = a.partial[buffer] + first * spec.v_head_dim;
      attention.log_sum = a.log_sum[buffer] + first;
    }
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchPrefillAttention(attention, stream)));
    if (part.is_first) continue;
    if (!part.is_last) merge.out = nullptr;
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchMergeAttention(merge, stream)));
  }
  return absl::OkStatus();
}

absl::Status FinishHeads(const CudaPass& pass, IndexRange heads, cuda::Stream stream) {
  cuda::MergeAttentionArgs merge = MergeOf(pass, heads, {0, pass.rows});
  merge.part = merge.part_log_sum = nullptr;
  return LaunchStatus(cuda::LaunchMergeAttention(merge, stream));
}

absl::Status AddOutput(const CudaPass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const CudaActivations& a = pass.activations;
  return LaunchStatus(cuda::LaunchLinear(ShapeOf(w.o, a.attended, spec.num_heads * spec.v_head_dim, a.residual,
                                                 spec.hidden_size, cuda::LinearOutput::kAddF32),
                                         PointersOf(w.o), pass.rows, stream));
}

}  // namespace moestro
