#include "services/decode/overlap/cuda/launches.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/head_linear.h"
#include "common/model/cuda_routing.h"
#include "common/model/rope.h"

namespace moestro {
namespace {

using cuda::InputStride;
using cuda::LaunchStatus;
using cuda::LinearOutput;
using cuda::PointersOf;
using cuda::ShapeOf;

cuda::RopeAngles AnglesOf(const DecodePass& pass) {
  return {pass.arrays.cosine, pass.arrays.sine, pass.spec.qk_rope_head_dim,
          pass.spec.has_grouped_queries() ? cuda::RopePairs::kHalves : cuda::RopePairs::kAdjacent};
}

// x = norm(residual), and in F32 to `out` if that is not null.
absl::Status NormResidual(const DecodePass& pass, const float* weight, float* out, cuda::Stream stream) {
  const int64_t hidden = pass.spec.hidden_size;
  return LaunchStatus(cuda::LaunchRmsNorm({.x = pass.residual,
                                           .x_stride = hidden,
                                           .weight = weight,
                                           .rows = pass.rows,
                                           .n = hidden,
                                           .eps = static_cast<float>(pass.spec.rms_norm_eps),
                                           .out = out,
                                           .out_bf16 = pass.activations.x,
                                           .out_bf16_stride = hidden},
                                          stream));
}

// to = W x of all rows
absl::Status Project(const DecodePass& pass, const PackedMatrix& w, float* to, cuda::Stream stream) {
  return LaunchStatus(cuda::LaunchLinear(ShapeOf(w, pass.activations.x, pass.spec.hidden_size, to, w.rows),
                                         PointersOf(w), pass.rows, stream));
}

// x = norm(x) of every head, [rows, heads, v_head_dim].
absl::Status NormHeads(const DecodePass& pass, const float* weight, int64_t heads, float* x, cuda::Stream stream) {
  return LaunchStatus(cuda::LaunchRmsNorm({.x = x,
                                           .x_stride = pass.spec.v_head_dim,
                                           .weight = weight,
                                           .rows = pass.rows * heads,
                                           .n = pass.spec.v_head_dim,
                                           .eps = static_cast<float>(pass.spec.rms_norm_eps),
                                           .out = x},
                                          stream));
}

// Grouped queries: the rows' keys and values.
absl::Status StoreKeysValues(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  float* const keys = pass.activations.projected;
  float* const values = keys + pass.rows * w.k.rows;
  MOE_RETURN_IF_ERROR(Project(pass, w.k, keys, stream));
  MOE_RETURN_IF_ERROR(Project(pass, w.v, values, stream));
  MOE_RETURN_IF_ERROR(NormHeads(pass, w.k_norm, spec.num_kv_heads, keys, stream));
  return LaunchStatus(cuda::LaunchStoreKeysValues({.keys = keys,
                                                   .values = values,
                                                   .rows = pass.rows,
                                                   .kv_heads = spec.num_kv_heads,
                                                   .head_dim = spec.v_head_dim,
                                                   .angles = AnglesOf(pass),
                                                   .pages = pass.pages,
                                                   .positions = pass.arrays.positions,
                                                   .first_page = pass.arrays.first_page,
                                                   .copy = pass.entries},
                                                  stream));
}

absl::Status GroupedQueries(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  MOE_RETURN_IF_ERROR(Project(pass, w.q_b, a.projected, stream));
  MOE_RETURN_IF_ERROR(NormHeads(pass, w.q_norm, spec.num_heads, a.projected, stream));
  return LaunchStatus(cuda::LaunchRotateHeads(a.projected, pass.rows, spec.num_heads, spec.v_head_dim, 0,
                                              AnglesOf(pass), a.queries, stream));
}

// attended = what the rows [begin, begin + rows) attend to.
absl::Status AttendGrouped(const DecodePass& pass, int64_t begin, int64_t rows, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  const int64_t width = spec.num_heads * spec.v_head_dim;
  return LaunchStatus(
      cuda::LaunchDecodeAttention({.rows = rows,
                                   .heads = spec.num_heads,
                                   .kv_heads = spec.num_kv_heads,
                                   .latent = spec.v_head_dim,
                                   .scale = static_cast<float>(SoftmaxScale(spec)),
                                   .latent_queries = {},
                                   .rotated_queries = {a.queries + begin * width, width, spec.v_head_dim},
                                   .pages = pass.pages,
                                   .positions = pass.arrays.positions + begin,
                                   .first_page = pass.arrays.first_page + begin,
                                   .partial = a.partial,
                                   .log_sum = a.log_sum,
                                   .out = a.attended + begin * width},
                                  stream));
}

// The rows' cached vectors.
absl::Status Store(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  MOE_RETURN_IF_ERROR(Project(pass, w.kv_a, a.projected, stream));
  return LaunchStatus(cuda::LaunchStoreLatent({.kv_a = a.projected,
                                               .weight = w.kv_a_norm,
                                               .rows = pass.rows,
                                               .latent = spec.kv_lora_rank,
                                               .eps = static_cast<float>(spec.lora_norm_eps),
                                               .angles = AnglesOf(pass),
                                               .pages = pass.pages,
                                               .positions = pass.arrays.positions,
                                               .first_page = pass.arrays.first_page,
                                               .copy = pass.entries},
                                              stream));
}

// Rotated queries, and their other numbers in the latent space.
absl::Status Query(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  const int64_t width = spec.num_heads * spec.qk_head_dim(), latent = spec.kv_lora_rank;
  const uint16_t* input = a.x;
  int64_t stride = spec.hidden_size;
  if (spec.q_lora_rank > 0) {
    MOE_RETURN_IF_ERROR(Project(pass, w.q_a, a.projected, stream));
    input = a.query_input;
    stride = InputStride(spec.q_lora_rank);
    MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRmsNorm({.x = a.projected,
                                                          .x_stride = spec.q_lora_rank,
                                                          .weight = w.q_a_norm,
                                                          .rows = pass.rows,
                                                          .n = spec.q_lora_rank,
                                                          .eps = static_cast<float>(spec.lora_norm_eps),
                                                          .out_bf16 = a.query_input,
                                                          .out_bf16_stride = stride},
                                                         stream)));
  }
  MOE_RETURN_IF_ERROR(LaunchStatus(
      cuda::LaunchLinear(ShapeOf(w.q_b, input, stride, a.projected, width), PointersOf(w.q_b), pass.rows, stream)));
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRotateHeads(a.projected, pass.rows, spec.num_heads, spec.qk_head_dim(),
                                                           spec.qk_nope_head_dim, AnglesOf(pass), a.queries, stream)));
  return LaunchStatus(cuda::LaunchHeadLinear({.dtype = w.key_transposed.dtype,
                                              .matrix = PointersOf(w.key_transposed),
                                              .heads = spec.num_heads,
                                              .head_rows = latent,
                                              .first_row = 0,
                                              .out_rows = latent,
                                              .cols = spec.qk_nope_head_dim,
                                              .x = a.queries,
                                              .x_row_stride = width,
                                              .x_head_stride = spec.qk_head_dim(),
                                              .y = a.latents,
                                              .y_row_stride = spec.num_heads * latent,
                                              .y_head_stride = latent},
                                             pass.rows, stream));
}

// latents = what the rows [begin, begin + rows) attend to. They take the place of the queries, which are read before.
absl::Status AttendRows(const DecodePass& pass, int64_t begin, int64_t rows, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  const int64_t width = spec.num_heads * spec.qk_head_dim(), latent = spec.kv_lora_rank;
  uint16_t* const latents = a.latents + begin * spec.num_heads * latent;
  return LaunchStatus(cuda::LaunchDecodeAttention(
      {.rows = rows,
       .heads = spec.num_heads,
       .latent = latent,
       .scale = static_cast<float>(SoftmaxScale(spec)),
       .latent_queries = {latents, spec.num_heads * latent, latent},
       .rotated_queries = {a.queries + begin * width + spec.qk_nope_head_dim, width, spec.qk_head_dim()},
       .pages = pass.pages,
       .positions = pass.arrays.positions + begin,
       .first_page = pass.arrays.first_page + begin,
       .partial = a.partial,
       .log_sum = a.log_sum,
       .out = latents},
      stream));
}

// attended = what the rows' queries attend to.
absl::Status AttendGrouped(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream) {
  MOE_RETURN_IF_ERROR(StoreKeysValues(pass, w, stream));
  MOE_RETURN_IF_ERROR(GroupedQueries(pass, w, stream));
  for (int64_t begin = 0; begin < pass.rows; begin += kAttendRows) {
    MOE_RETURN_IF_ERROR(AttendGrouped(pass, begin, std::min(kAttendRows, pass.rows - begin), stream));
  }
  return absl::OkStatus();
}

absl::Status AttendAbsorbed(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  const int64_t values = spec.v_head_dim;
  MOE_RETURN_IF_ERROR(Store(pass, w, stream));
  MOE_RETURN_IF_ERROR(Query(pass, w, stream));
  for (int64_t begin = 0; begin < pass.rows; begin += kAttendRows) {
    MOE_RETURN_IF_ERROR(AttendRows(pass, begin, std::min(kAttendRows, pass.rows - begin), stream));
  }
  return LaunchStatus(cuda::LaunchHeadLinear({.dtype = w.kv_b.dtype,
                                              .matrix = PointersOf(w.kv_b),
                                              .heads = spec.num_heads,
                                              .head_rows = spec.qk_nope_head_dim + values,
                                              .first_row = spec.qk_nope_head_dim,
                                              .out_rows = values,
                                              .cols = spec.kv_lora_rank,
                                              .x = a.latents,
                                              .x_row_stride = spec.num_heads * spec.kv_lora_rank,
                                              .x_head_stride = spec.kv_lora_rank,
                                              .y = a.attended,
                                              .y_row_stride = InputStride(spec.num_heads * values),
                                              .y_head_stride = values},
                                             pass.rows, stream));
}

// out (+)= mlp(x)
absl::Status RunMlp(const DecodePass& pass, const MlpWeights& w, float* out, LinearOutput output, cuda::Stream stream) {
  const DecodeActivations& a = pass.activations;
  const int64_t hidden = pass.spec.hidden_size, width = InputStride(w.gate.rows);
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchGateUp(ShapeOf(w.gate, a.x, hidden, a.gated, width), PointersOf(w.gate),
                                                      PointersOf(w.up), pass.rows, stream)));
  return LaunchStatus(
      cuda::LaunchLinear(ShapeOf(w.down, a.gated, width, out, hidden, output), PointersOf(w.down), pass.rows, stream));
}

}  // namespace

absl::Status EmbedTokens(const DecodePass& pass, cuda::Stream stream) {
  return LaunchStatus(
      cuda::LaunchEmbed(pass.arrays.embeddings, nullptr, pass.rows, pass.spec.hidden_size, pass.residual, stream));
}

absl::Status AddAttention(const DecodePass& pass, const AttentionWeights& w, cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  const int64_t attended = InputStride(spec.num_heads * spec.v_head_dim);
  MOE_RETURN_IF_ERROR(NormResidual(pass, w.input_norm, nullptr, stream));
  MOE_RETURN_IF_ERROR(spec.has_grouped_queries() ? AttendGrouped(pass, w, stream) : AttendAbsorbed(pass, w, stream));
  return LaunchStatus(
      cuda::LaunchLinear(ShapeOf(w.o, a.attended, attended, pass.residual, spec.hidden_size, LinearOutput::kAddF32),
                         PointersOf(w.o), pass.rows, stream));
}

absl::Status AddDense(const DecodePass& pass, const FeedForwardWeights& w, cuda::Stream stream) {
  MOE_RETURN_IF_ERROR(NormResidual(pass, w.norm, nullptr, stream));
  return RunMlp(pass, w.always, pass.residual, LinearOutput::kAddF32, stream);
}

absl::Status RouteToExperts(const DecodePass& pass, const FeedForwardWeights& w, int32_t* has_nan,
                            cuda::Stream stream) {
  const ModelSpec& spec = pass.spec;
  const DecodeActivations& a = pass.activations;
  // The router reads the F32 form: a choice between experts is not continuous in it.
  MOE_RETURN_IF_ERROR(NormResidual(pass, w.norm, a.normed, stream));
  MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchRouterLogits(w.router, spec.num_experts, spec.hidden_size, a.normed,
                                                            pass.rows, a.router_logits, stream)));
  static_assert(sizeof(ExpertChoice) == 2 * sizeof(int32_t), "pairs of an id and a weight");
  cuda::ChooseExpertsArgs choice = ChoiceOf(spec, a.router_logits, w.bias, pass.rows);
  choice.ids = &a.choices->expert;
  choice.weights = &a.choices->weight;
  choice.stride = 2;
  choice.has_nan = has_nan;
  return LaunchStatus(cuda::LaunchChooseExperts(choice, stream));
}

absl::Status RunSharedExpert(const DecodePass& pass, const MlpWeights& w, cuda::Stream stream) {
  if (w.gate.rows == 0) return absl::OkStatus();
  return RunMlp(pass, w, pass.activations.shared, LinearOutput::kF32, stream);
}

// In the engine's order: the shared expert is added to the sum of the others, and that to the residual.
absl::Status AddExperts(const DecodePass& pass, const MlpWeights& shared, cuda::Stream stream) {
  const DecodeActivations& a = pass.activations;
  const int64_t numbers = pass.rows * pass.spec.hidden_size;
  if (shared.gate.rows > 0) MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchAdd(a.shared, numbers, a.sums, stream)));
  return LaunchStatus(cuda::LaunchAdd(a.sums, numbers, pass.residual, stream));
}

}  // namespace moestro
