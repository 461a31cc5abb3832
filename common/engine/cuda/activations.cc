#include "common/engine/cuda/activations.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/device/arrays.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/fp8_inputs.h"
#include "common/model/attention/attention.h"

namespace moestro::engine {
namespace {

template <typename Take>
void VisitPlan(cuda::RoutingPlan& plan, int64_t choices, int64_t experts, const Take& take) {
  take(plan.begin, experts + 1);
  take(plan.row_of, choices);
  take(plan.routed_of, choices);
  take(plan.small, cuda::MaxSmallTiles(choices, experts));
  take(plan.large, cuda::MaxLargeTiles(choices, experts));
  take(plan.small_begin, experts + 1);
  take(plan.large_begin, experts + 1);
}

}  // namespace

// Calls take(pointer&, elements) for every array. This and the two below are the one list of them.
template <typename Take>
void CudaActivations::Visit(const weights::ModelSpec& spec, const CudaSizes& sizes, const Take& take) {
  const bool is_step = sizes.use == CudaUse::kStep;
  const int64_t rows = sizes.rows, hidden = spec.hidden_size;
  const int64_t heads = is_step ? spec.num_heads : HeadsTogether(spec);
  tile_rows = is_step ? rows : TileRows(sizes);
  part_tokens = sizes.part_tokens;
  take(x, rows * CudaStride(hidden));
  if (sizes.coded) take(codes, rows * cuda::Int8Stride(hidden));
  take(sums, rows * hidden);
  take(projected, tile_rows * std::max(spec.q_lora_rank + spec.kv_dim(), heads * spec.qk_head_dim()));
  if (spec.q_lora_rank > 0) take(query_input, rows * CudaStride(spec.q_lora_rank));
  take(queries, rows * heads * spec.qk_head_dim());
  take(attn_out, rows * CudaStride(spec.num_heads * spec.v_head_dim));
  const bool has_experts = spec.num_moe_layers() > 0;
  if (has_experts) {
    take(normed, tile_rows * hidden);
    take(router_logits, tile_rows * spec.num_experts);
    if (sizes.use != CudaUse::kShare) take(choices, rows * spec.experts_per_token);
    if (spec.shared_expert_gate != 0) take(shared_gates, rows);
  }
  int64_t gated_elements = tile_rows * CudaStride(std::max(spec.intermediate_size, spec.shared_intermediate_size()));
  if (has_experts && !is_step) {
    gated_elements =
        std::max(gated_elements, tile_rows * spec.experts_per_token * CudaStride(spec.moe_intermediate_size));
  }
  take(gated, gated_elements);
  if (is_step) return VisitStep(spec, rows, take);
  VisitPrompt(spec, sizes, take);
}

template <typename Take>
void CudaActivations::VisitPrompt(const weights::ModelSpec& spec, const CudaSizes& sizes, const Take& take) {
  const int64_t rows = sizes.rows, hidden = spec.hidden_size, heads = HeadsTogether(spec);
  if (sizes.fp8_inputs) {
    const int64_t widest = std::max({hidden, spec.q_lora_rank, spec.kv_lora_rank, spec.num_heads * spec.v_head_dim,
                                     spec.intermediate_size, spec.shared_intermediate_size()});
    const int64_t routed =
        spec.num_moe_layers() == 0
            ? 0
            : tile_rows * spec.experts_per_token * cuda::Fp8RowBytes(std::max(hidden, spec.moe_intermediate_size));
    take(fp8_codes,
         std::max({tile_rows * cuda::Fp8RowBytes(widest), part_tokens * cuda::Fp8RowBytes(spec.kv_lora_rank), routed}));
  }
  take(tokens, rows);
  take(residual, rows * hidden);
  take(cosine, rows * spec.rotated_dims() / 2);
  take(sine, rows * spec.rotated_dims() / 2);
  if (sizes.use == CudaUse::kPass) {
    for (uint16_t*& buffer : latents) take(buffer, part_tokens * spec.kv_dim());
    earlier_tokens = std::max(part_tokens, sizes.earlier_tokens);
    take(earlier, earlier_tokens * spec.kv_dim());
  }
  if (spec.attention_kind() == weights::AttentionKind::kLatent)
    take(expanded, part_tokens * heads * (spec.qk_nope_head_dim + spec.v_head_dim));
  for (float*& buffer : partial) take(buffer, rows * heads * spec.v_head_dim);
  for (float*& buffer : log_sum) take(buffer, rows * heads);
  if (spec.num_moe_layers() > 0) {
    const int64_t chosen = spec.experts_per_token, experts = spec.num_experts;
    if (sizes.use == CudaUse::kShare) VisitPlan(pairs, rows * chosen, experts, take);
    plans.resize(CeilDiv(sizes.expert_rows, tile_rows));
    for (cuda::RoutingPlan& plan : plans) VisitPlan(plan, tile_rows * chosen, experts, take);
    take(expert_out, tile_rows * chosen * hidden);
    if (sizes.use == CudaUse::kShare && sizes.coded) {
      take(routed_codes, tile_rows * chosen * cuda::Int8Stride(hidden));
    }
  }
  take(has_nan, spec.num_layers);
  take(head_input, model::kLogitRows * CudaStride(hidden));
  take(logits, model::kLogitRows * spec.vocab_size);
}

template <typename Take>
void CudaActivations::VisitStep(const weights::ModelSpec& spec, int64_t rows, const Take& take) {
  const int64_t heads = spec.num_heads, together = std::min(rows, kAttendRows) * cuda::kMaxSplits * heads;
  if (spec.kv_lora_rank > 0) take(latent_queries, rows * heads * spec.kv_lora_rank);
  take(partial[0], together * model::SumWidth(spec, model::MlaForm::kAbsorbed));
  take(log_sum[0], together);
  take(entries, spec.num_layers * rows * spec.kv_dim());
  take(shared, rows * spec.hidden_size);
}

int64_t CudaActivations::Bytes(const weights::ModelSpec& spec, const CudaSizes& sizes) {
  return device::ArrayBytes([&](const auto& take) { CudaActivations().Visit(spec, sizes, take); });
}

CudaSizes CudaActivations::WithSpare(const weights::ModelSpec& spec, CudaSizes sizes, int64_t earlier_tokens,
                                     int64_t spare_bytes) {
  const int64_t most_bytes = Bytes(spec, sizes) + spare_bytes;
  CudaSizes with_earlier = sizes;
  with_earlier.earlier_tokens = earlier_tokens;
  if (Bytes(spec, with_earlier) <= most_bytes) sizes = with_earlier;
  while (sizes.most_tile_rows < std::max(sizes.rows, sizes.expert_rows)) {
    CudaSizes longer = sizes;
    longer.most_tile_rows *= 2;
    if (Bytes(spec, longer) > most_bytes) break;
    sizes = longer;
  }
  return sizes;
}

absl::StatusOr<CudaActivations> CudaActivations::Allocate(device::Device& device, const weights::ModelSpec& spec,
                                                          const CudaSizes& sizes) {
  CudaActivations activations;
  MOE_ASSIGN_OR_RETURN(activations.memory_, device::AllocateArrays(device, "activations", [&](const auto& take) {
                         activations.Visit(spec, sizes, take);
                       }));
  return activations;
}

}  // namespace moestro::engine
