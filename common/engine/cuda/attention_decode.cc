// Attention of a step of decode, over pages.
#include <algorithm>

#include "common/base/status.h"
#include "common/engine/cuda/attention.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/head_linear.h"
#include "common/model/attention/rope.h"

namespace moestro {
namespace {

// What both kinds of attention of the rows [begin, begin + count) have in common.
cuda::DecodeAttentionArgs ArgsOf(const CudaRows& rows, int64_t begin, int64_t count) {
  const CudaActivations& a = rows.activations;
  return {.rows = count,
          .heads = rows.spec.num_heads,
          .scale = static_cast<float>(SoftmaxScale(rows.spec)),
          .latent_queries = {},
          .rotated_queries = {},
          .pages = rows.cache,
          .positions = rows.positions + begin,
          .first_page = rows.first_page + begin,
          .partial = a.partial[0],
          .log_sum = a.log_sum[0]};
}

// attended = what the rows [begin, begin + count) attend to.
absl::Status AttendGrouped(const CudaRows& rows, int64_t begin, int64_t count, cuda::Stream stream) {
  const ModelSpec& spec = rows.spec;
  const int64_t width = spec.num_heads * spec.v_head_dim;
  cuda::DecodeAttentionArgs args = ArgsOf(rows, begin, count);
  args.kv_heads = spec.num_kv_heads;
  args.latent = spec.v_head_dim;
  args.rotated_queries = {rows.activations.queries + begin * width, width, spec.v_head_dim};
  args.out = rows.activations.attended + begin * width;
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

// attended: values of what was attended to in the latent space.
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
                                              .y = rows.activations.attended,
                                              .y_row_stride = CudaStride(spec.num_heads * values),
                                              .y_head_stride = values},
                                             rows.rows, stream));
}

}  // namespace

absl::Status AddDecodeAttention(const CudaRows& rows, const AttentionWeights& w, cuda::Stream stream) {
  const bool grouped = rows.spec.attention_kind() == AttentionKind::kGroupedQueries;
  MOE_RETURN_IF_ERROR(ProjectDown(rows, w, stream));
  MOE_RETURN_IF_ERROR(ProjectQueries(rows, w, {0, rows.spec.num_heads}, stream));
  if (!grouped) MOE_RETURN_IF_ERROR(QueriesToLatents(rows, w, stream));
  for (int64_t begin = 0; begin < rows.rows; begin += kAttendRows) {
    const int64_t count = std::min(kAttendRows, rows.rows - begin);
    MOE_RETURN_IF_ERROR((grouped ? AttendGrouped : AttendLatents)(rows, begin, count, stream));
  }
  if (!grouped) MOE_RETURN_IF_ERROR(LatentsToValues(rows, w, stream));
  return AddOutput(rows, w, stream);
}

}  // namespace moestro
