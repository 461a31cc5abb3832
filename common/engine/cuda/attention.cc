#include "common/engine/cuda/attention.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/engine/weight_image.h"
#include "common/kernels/cuda/attention.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/head_linear.h"
#include "common/model/attention/rope.h"

namespace moestro::engine {

using model::AttentionWeights;
using weights::ModelSpec;

namespace {

// y = W x + bias of a tile's rows. Null bias: there is none.
absl::Status Project(const CudaRows& rows, const PackedMatrix& w, const float* bias, IndexRange tile, float* y,
                     cuda::Stream stream) {
  MOE_RETURN_IF_ERROR(
      Multiply(rows, ShapeOf(w, rows.InputsOf(w, tile), y, w.rows), PointersOf(w), tile.size(), stream));
  if (bias == nullptr) return absl::OkStatus();
  return LaunchStatus(cuda::LaunchAddBias(bias, tile.size(), w.rows, y, stream));
}

// Projected queries, keys or values of some rows, [rows, width], where the model clamps them.
absl::Status Clamp(const ModelSpec& spec, int64_t rows, int64_t width, float* x, cuda::Stream stream) {
  if (spec.clip_qkv == 0) return absl::OkStatus();
  return LaunchStatus(cuda::LaunchClamp(static_cast<float>(spec.clip_qkv), rows * width, x, stream));
}

// x = norm(x) of every head of some rows, or of all heads together, [rows, heads, v_head_dim]. Null weight: heads have
// no norms.
absl::Status NormHeads(const ModelSpec& spec, const float* weight, int64_t rows, int64_t heads, float* x,
                       cuda::Stream stream) {
  if (weight == nullptr) return absl::OkStatus();
  const int64_t together = spec.norms_of_all_heads != 0 ? heads : 1, width = together * spec.v_head_dim;
  return LaunchStatus(cuda::LaunchRmsNorm({.x = x,
                                           .x_stride = width,
                                           .weight = weight,
                                           .rows = rows * heads / together,
                                           .n = width,
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

// MLA: normalised latents and rotated keys of a stripe's rows in a tile, whose kv_a is kv_a.
cuda::StoreLatentArgs LatentsOf(const CudaRows& rows, const AttentionWeights& w, const float* kv_a, IndexRange part,
                                int64_t position) {
  const ModelSpec& spec = rows.spec;
  return {.kv_a = kv_a,
          .weight = w.kv_a_norm,
          .rows = part.size(),
          .latent = spec.kv_lora_rank,
          .eps = static_cast<float>(spec.lora_norm_eps),
          .angles = rows.Angles(part),
          .position = position,
          .pages = rows.cache,
          .positions = rows.positions,
          .first_page = rows.first_page,
          .copy = rows.entries};
}

// query_input = norm(q_a) of a tile's rows, as q_b takes it.
cuda::RmsNormArgs QueryNormOf(const CudaRows& rows, const AttentionWeights& w, const float* q_a, IndexRange tile) {
  const ModelSpec& spec = rows.spec;
  const int64_t stride = CudaStride(spec.q_lora_rank);
  uint16_t* const out = rows.activations.query_input + tile.begin * stride;
  const bool coded = rows.coded() && w.q_b.dtype == DType::kI8;
  return {.x = q_a,
          .x_stride = spec.q_lora_rank,
          .weight = w.q_a_norm,
          .rows = tile.size(),
          .n = spec.q_lora_rank,
          .eps = static_cast<float>(spec.lora_norm_eps),
          .out = nullptr,
          .out_bf16 = coded ? nullptr : out,
          .out_bf16_stride = stride,
          .out_int8 = coded ? out : nullptr,
          .out_int8_stride = stride};
}

// MLA: latents and keys of a tile's rows to the cache, and the queries' input.
absl::Status ProjectLatents(const CudaRows& rows, const AttentionWeights& w, IndexRange tile, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  float* const kv_a = rows.activations.projected;
  float* const q_a = kv_a + tile.size() * spec.kv_dim();
  const bool has_q_a = spec.q_lora_rank > 0;
  const bool in_fp8 = rows.activations.fp8_codes != nullptr;  // each product rounds its inputs
  if (has_q_a && !in_fp8) {
    const auto shape = [&](const PackedMatrix& m, float* y) { return ShapeOf(m, rows.InputsOf(m, tile), y, m.rows); };
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchLinearPair(shape(w.kv_a, kv_a), PointersOf(w.kv_a), shape(w.q_a, q_a),
                                                            PointersOf(w.q_a), tile.size(), stream)));
  } else {
    MOE_RETURN_IF_ERROR(Project(rows, w.kv_a, nullptr, tile, kv_a, stream));
    if (has_q_a) MOE_RETURN_IF_ERROR(Project(rows, w.q_a, nullptr, tile, q_a, stream));
  }
  return ForStripes(rows, tile, [&](IndexRange part, int64_t position) {
    const int64_t first = part.begin - tile.begin;
    const cuda::StoreLatentArgs store = LatentsOf(rows, w, kv_a + first * spec.kv_dim(), part, position);
    if (!has_q_a) return LaunchStatus(cuda::LaunchStoreLatent(store, stream));
    const cuda::RmsNormArgs norm = QueryNormOf(rows, w, q_a + first * spec.q_lora_rank, part);
    return LaunchStatus(cuda::LaunchStoreLatentAndNorm(store, norm, stream));
  });
}

// Grouped queries: keys and values of a tile's rows.
absl::Status StoreKeysValues(const CudaRows& rows, const AttentionWeights& w, IndexRange tile, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t width = w.k.rows;
  float* const keys = rows.activations.projected;
  float* const values = keys + tile.size() * width;
  MOE_RETURN_IF_ERROR(Project(rows, w.k, w.k_bias, tile, keys, stream));
  MOE_RETURN_IF_ERROR(Project(rows, w.v, w.v_bias, tile, values, stream));
  MOE_RETURN_IF_ERROR(Clamp(spec, tile.size(), 2 * width, keys, stream));  // and values
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
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    if (!rows.is_normed) MOE_RETURN_IF_ERROR(NormResidual(rows, w.input_norm, tile, nullptr, stream));
    MOE_RETURN_IF_ERROR(spec.attention_kind() == weights::AttentionKind::kGroupedQueries
                            ? StoreKeysValues(rows, w, tile, stream)
                            : ProjectLatents(rows, w, tile, stream));
  }
  return absl::OkStatus();
}

namespace {

// What rows of q_b multiply, as ProjectDown has left it.
CudaInputRows QueryInput(const CudaRows& rows, const PackedMatrix& q_b, IndexRange tile) {
  CudaInputRows in = rows.InputsOf(q_b, tile);
  if (rows.spec.q_lora_rank > 0) {
    in.stride = CudaStride(rows.spec.q_lora_rank);
    in.x = rows.activations.query_input + tile.begin * in.stride;
  }
  return in;
}

}  // namespace

absl::Status ProjectQueries(const CudaRows& rows, const AttentionWeights& w, IndexRange heads, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const CudaActivations& a = rows.activations;
  const int64_t width = heads.size() * spec.qk_head_dim();
  const PackedMatrix slice = SliceRows(w.q_b, heads.begin * spec.qk_head_dim(), width);
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    const CudaInputRows in = QueryInput(rows, slice, tile);
    const cuda::LinearShape shape =
        ShapeOf(slice, in, a.queries + tile.begin * width, width, cuda::LinearOutput::kBf16);
    const cuda::RopeAngles angles = rows.Angles(tile);
    // What the models that have these apply lies between the product and the rotation.
    const bool alone = w.q_bias == nullptr && spec.clip_qkv == 0 && w.q_norm == nullptr;
    const cuda::HeadRotation rotation = {angles.cosine, angles.sine, spec.qk_head_dim(), spec.qk_nope_head_dim,
                                         angles.dims};
    if (alone && angles.pairs == cuda::RopePairs::kAdjacent && !InFp8(a, shape) &&
        cuda::RotatesOutputs(shape, rotation, tile.size())) {
      MOE_RETURN_IF_ERROR(
          LaunchStatus(cuda::LaunchRotatedLinear(shape, rotation, PointersOf(slice), tile.size(), stream)));
      continue;
    }
    MOE_RETURN_IF_ERROR(Multiply(rows, ShapeOf(slice, in, a.projected, width), PointersOf(slice), tile.size(), stream));
    if (w.q_bias != nullptr) {
      MOE_RETURN_IF_ERROR(LaunchStatus(
          cuda::LaunchAddBias(w.q_bias + heads.begin * spec.qk_head_dim(), tile.size(), width, a.projected, stream)));
    }
    MOE_RETURN_IF_ERROR(Clamp(spec, tile.size(), width, a.projected, stream));
    MOE_RETURN_IF_ERROR(NormHeads(spec, w.q_norm, tile.size(), heads.size(), a.projected, stream));
    MOE_RETURN_IF_ERROR(
        LaunchStatus(cuda::LaunchRotateHeads(a.projected, tile.size(), heads.size(), spec.qk_head_dim(),
                                             spec.qk_nope_head_dim, angles, a.queries + tile.begin * width, stream)));
  }
  return absl::OkStatus();
}

absl::Status ProjectPlainQueries(const CudaRows& rows, const AttentionWeights& w, float* queries, cuda::Stream stream) {
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    const cuda::LinearShape shape =
        ShapeOf(w.q_b, QueryInput(rows, w.q_b, tile), queries + tile.begin * w.q_b.rows, w.q_b.rows);
    MOE_RETURN_IF_ERROR(Multiply(rows, shape, PointersOf(w.q_b), tile.size(), stream));
  }
  return absl::OkStatus();
}

absl::Status AddOutput(const CudaRows& rows, const AttentionWeights& w, uint16_t* attn_out, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t stride = CudaStride(spec.num_heads * spec.v_head_dim), hidden = spec.hidden_size;
  for (int64_t t = 0; t < rows.tiles(); ++t) {
    const IndexRange tile = rows.Tile(t);
    MOE_ASSIGN_OR_RETURN(const CudaInputRows in,
                         CodeInPlace(rows.coded(), w.o, attn_out + tile.begin * stride, stride, tile.size(), stream));
    MOE_RETURN_IF_ERROR(
        Multiply(rows, ShapeOf(w.o, in, rows.residual + tile.begin * hidden, hidden, cuda::LinearOutput::kAddF32),
                 PointersOf(w.o, w.o_bias), tile.size(), stream));
  }
  return absl::OkStatus();
}

// A prompt: part by part of its tokens.

namespace {

// Keys and values of a part for some heads.
struct PartVectors {
  int64_t kv_heads = 0;
  cuda::KvVectors keys, shared_keys, values;
};

// MLA: expanded from the latents.
absl::StatusOr<PartVectors> Expand(const CudaRows& rows, const AttentionWeights& w, IndexRange heads,
                                   const KvPart& part, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  uint16_t* const expanded = rows.activations.expanded;
  const int64_t head = spec.qk_nope_head_dim + spec.v_head_dim, width = heads.size() * head;
  const PackedMatrix slice = SliceRows(w.kv_b, heads.begin * head, width);
  MOE_RETURN_IF_ERROR(Multiply(rows,
                               ShapeOf(slice, part.latents, spec.kv_dim(), expanded, width, cuda::LinearOutput::kBf16),
                               PointersOf(slice), part.tokens, stream));
  const cuda::KvVectors keys{expanded, nullptr, cuda::kKvBlock * width, width, head};
  cuda::KvVectors values = keys;
  values.data += spec.qk_nope_head_dim;
  const cuda::KvVectors shared{part.latents + spec.kv_lora_rank, nullptr, cuda::kKvBlock * spec.kv_dim(), spec.kv_dim(),
                               0};
  return PartVectors{heads.size(), keys, shared, values};
}

// Grouped queries: as they are cached. The heads are whole groups.
PartVectors Cached(const CudaRows& rows, IndexRange heads, const KvPart& part) {
  const ModelSpec& spec = rows.spec;
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  const cuda::KvVectors keys{part.latents + heads.begin / group * spec.v_head_dim, nullptr,
                             cuda::kKvBlock * spec.kv_dim(), spec.kv_dim(), spec.v_head_dim};
  cuda::KvVectors values = keys;
  values.data += spec.num_kv_heads * spec.v_head_dim;
  return {heads.size() / group, keys, {}, values};
}

// What merging works with, of a stripe's rows and some heads.
cuda::MergeAttentionArgs MergeOf(const CudaRows& rows, const AttentionWeights& w, IndexRange heads, IndexRange of) {
  const CudaActivations& a = rows.activations;
  const int64_t value_dim = rows.spec.v_head_dim, first = of.begin * heads.size();
  return {.rows = of.size(),
          .heads = heads.size(),
          .value_dim = value_dim,
          .total = a.partial[0] + first * value_dim,
          .total_log_sum = a.log_sum[0] + first,
          .part = a.partial[1] + first * value_dim,
          .part_log_sum = a.log_sum[1] + first,
          .sinks = w.sinks == nullptr ? nullptr : w.sinks + heads.begin,
          .out = a.attn_out + of.begin * rows.spec.num_heads * value_dim + heads.begin * value_dim,
          .out_stride = rows.spec.num_heads * value_dim};
}

}  // namespace

absl::Status Attend(const CudaRows& rows, const AttentionWeights& w, IndexRange heads, const KvPart& part,
                    cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const CudaActivations& a = rows.activations;
  PartVectors vectors;
  if (spec.attention_kind() == weights::AttentionKind::kGroupedQueries) {
    vectors = Cached(rows, heads, part);
  } else {
    MOE_ASSIGN_OR_RETURN(vectors, Expand(rows, w, heads, part, stream));
  }
  for (const CudaStripe& stripe : rows.stripes) {
    // The first part sets what others add to, even where it has nothing for a stripe.
    const bool behind = w.window > 0 && stripe.position + 1 - w.window >= part.first_token + part.tokens;
    if (!part.is_first && (behind || stripe.end() <= part.first_token)) continue;
    cuda::MergeAttentionArgs merge = MergeOf(rows, w, heads, stripe.rows);
    cuda::PrefillAttentionArgs attention{.heads = heads.size(),
                                         .kv_heads = vectors.kv_heads,
                                         .key_dim = spec.qk_head_dim(),
                                         .value_dim = spec.v_head_dim,
                                         .scale = static_cast<float>(model::SoftmaxScale(spec)),
                                         .keys = vectors.keys,
                                         .shared_keys = vectors.shared_keys,
                                         .values = vectors.values,
                                         .position = stripe.position,
                                         .window = w.window,
                                         .sinks = merge.sinks,
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

absl::Status FinishHeads(const CudaRows& rows, const AttentionWeights& w, IndexRange heads, cuda::Stream stream) {
  cuda::MergeAttentionArgs merge = MergeOf(rows, w, heads, {0, rows.rows});
  merge.part = merge.part_log_sum = nullptr;
  return LaunchStatus(cuda::LaunchMergeAttention(merge, stream));
}

// A step of decode: over pages.

namespace {

// What both kinds of attention of the rows [begin, begin + count) have in common.
cuda::DecodeAttentionArgs ArgsOf(const CudaRows& rows, int64_t begin, int64_t count) {
  const CudaActivations& a = rows.activations;
  return {.rows = count,
          .heads = rows.spec.num_heads,
          .scale = static_cast<float>(model::SoftmaxScale(rows.spec)),
          .latent_queries = {},
          .rotated_queries = {},
          .pages = rows.cache,
          .positions = rows.positions + begin,
          .first_page = rows.first_page + begin,
          .partial = a.partial[0],
          .log_sum = a.log_sum[0]};
}

// attn_out = what the rows [begin, begin + count) attend to.
absl::Status AttendGrouped(const CudaRows& rows, const AttentionWeights& w, int64_t begin, int64_t count,
                           cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t width = spec.num_heads * spec.v_head_dim;
  cuda::DecodeAttentionArgs args = ArgsOf(rows, begin, count);
  args.kv_heads = spec.num_kv_heads;
  args.window = w.window;
  args.sinks = w.sinks;
  args.latent = spec.v_head_dim;
  args.rotated_queries = {rows.activations.queries + begin * width, width, spec.v_head_dim};
  args.out = rows.activations.attn_out + begin * width;
  return LaunchStatus(cuda::LaunchDecodeAttention(args, stream));
}

// latent_queries = what the rows [begin, begin + count) attend to, in place of the queries, which are read before.
absl::Status AttendLatents(const CudaRows& rows, int64_t begin, int64_t count, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t width = spec.num_heads * spec.qk_head_dim(), latent = spec.kv_lora_rank;
  uint16_t* const latents = rows.activations.latent_queries + begin * spec.num_heads * latent;
  cuda::DecodeAttentionArgs args = ArgsOf(rows, begin, count);
  args.latent = latent;
  args.latent_queries = {latents, spec.num_heads * latent, latent};
  args.rotated_queries = {rows.activations.queries + begin * width + spec.qk_nope_head_dim, width, spec.qk_head_dim()};
  args.out = latents;
  return LaunchStatus(cuda::LaunchDecodeAttention(args, stream));
}

// latent_queries: the queries' parts that are not rotated, in the latent space.
absl::Status QueriesToLatents(const CudaRows& rows, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t latent = spec.kv_lora_rank;
  return LaunchStatus(cuda::LaunchHeadLinear({.dtype = w.key_transposed.dtype,
                                              .matrix = PointersOf(w.key_transposed),
                                              .heads = spec.num_heads,
                                              .head_rows = latent,
                                              .first_row = 0,
                                              .out_rows = latent,
                                              .cols = spec.qk_nope_head_dim,
                                              .x = rows.activations.queries,
                                              .x_row_stride = spec.num_heads * spec.qk_head_dim(),
                                              .x_head_stride = spec.qk_head_dim(),
                                              .y = rows.activations.latent_queries,
                                              .y_row_stride = spec.num_heads * latent,
                                              .y_head_stride = latent},
                                             rows.rows, stream));
}

// attn_out: values of what was attended to in the latent space.
absl::Status LatentsToValues(const CudaRows& rows, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t values = spec.v_head_dim;
  return LaunchStatus(cuda::LaunchHeadLinear({.dtype = w.kv_b.dtype,
                                              .matrix = PointersOf(w.kv_b),
                                              .heads = spec.num_heads,
                                              .head_rows = spec.qk_nope_head_dim + values,
                                              .first_row = spec.qk_nope_head_dim,
                                              .out_rows = values,
                                              .cols = spec.kv_lora_rank,
                                              .x = rows.activations.latent_queries,
                                              .x_row_stride = spec.num_heads * spec.kv_lora_rank,
                                              .x_head_stride = spec.kv_lora_rank,
                                              .y = rows.activations.attn_out,
                                              .y_row_stride = CudaStride(spec.num_heads * values),
                                              .y_head_stride = values},
                                             rows.rows, stream));
}

}  // namespace

absl::Status AddDecodeAttention(const CudaRows& rows, const AttentionWeights& w, cuda::Stream stream) {
  const bool grouped = rows.spec.attention_kind() == weights::AttentionKind::kGroupedQueries;
  MOE_RETURN_IF_ERROR(ProjectDown(rows, w, stream));
  MOE_RETURN_IF_ERROR(ProjectQueries(rows, w, {0, rows.spec.num_heads}, stream));
  if (!grouped) MOE_RETURN_IF_ERROR(QueriesToLatents(rows, w, stream));
  for (int64_t begin = 0; begin < rows.rows; begin += kAttendRows) {
    const int64_t count = std::min(kAttendRows, rows.rows - begin);
    MOE_RETURN_IF_ERROR(grouped ? AttendGrouped(rows, w, begin, count, stream)
                                : AttendLatents(rows, begin, count, stream));
  }
  if (!grouped) MOE_RETURN_IF_ERROR(LatentsToValues(rows, w, stream));
  return AddOutput(rows, w, rows.activations.attn_out, stream);
}

}  // namespace moestro::engine
