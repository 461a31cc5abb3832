#include "services/prefill/stream/cuda/activations.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/device/arrays.h"

namespace moestro {
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

// Calls take(pointer&, numbers) for every array. The one list of them.
template <typename Take>
void CudaActivations::Visit(const ModelSpec& spec, const CudaSizes& sizes, const Take& take) {
  const int64_t rows = sizes.rows, hidden = spec.hidden_size;
  tile_rows = std::min(std::max(rows, sizes.expert_rows), kCudaTileRows);
  part_tokens = sizes.part_tokens;
  take(residual, rows * hidden);
  take(normed_narrow, rows * CudaStride(hidden));
  take(sums, rows * hidden);
  take(cosine, rows * spec.qk_rope_head_dim / 2);
  take(sine, rows * spec.qk_rope_head_dim / 2);

  const int64_t heads = HeadsTogether(spec);
  take(projected, tile_rows * std::max({spec.q_lora_rank, spec.kv_dim(), heads * spec.qk_head_dim()}));
  if (spec.q_lora_rank > 0) take(query_input, rows * CudaStride(spec.q_lora_rank));
  if (sizes.alone) {
    for (uint16_t*& buffer : latents) take(buffer, part_tokens * spec.kv_dim());
    take(earlier, part_tokens * spec.kv_dim());
  }
  if (!spec.has_grouped_queries()) take(expanded, part_tokens * heads * (spec.qk_nope_head_dim + spec.v_head_dim));
  take(queries, rows * heads * spec.qk_head_dim());
  take(attended, rows * spec.num_heads * spec.v_head_dim);
  for (float*& buffer : partial) take(buffer, rows * heads * spec.v_head_dim);
  for (float*& buffer : log_sum) take(buffer, rows * heads);

  int64_t gated_numbers = tile_rows * CudaStride(std::max(spec.intermediate_size, spec.shared_intermediate_size()));
  if (spec.first_dense_layers < spec.num_layers) {
    const int64_t chosen = spec.experts_per_token, experts = spec.num_experts, routed = tile_rows * chosen;
    take(normed, tile_rows * hidden);
    take(router_logits, tile_rows * experts);
    if (sizes.alone) {
      take(ids, rows * chosen);
      take(weights, rows * chosen);
    } else {
      VisitPlan(pairs, rows * chosen, experts, take);
    }
    plans.resize(CeilDiv(sizes.expert_rows, tile_rows));
    for (cuda::RoutingPlan& plan : plans) VisitPlan(plan, routed, experts, take);
    take(expert_out, routed * hidden);
    gated_numbers = std::max(gated_numbers, routed * CudaStride(spec.moe_intermediate_size));
  }
  take(gated, gated_numbers);
  take(has_nan, spec.num_layers);
  take(head_input, kLogitRows * CudaStride(hidden));
  take(logits, kLogitRows * spec.vocab_size);
}

int64_t CudaActivations::Bytes(const ModelSpec& spec, const CudaSizes& sizes) {
  return device::ArrayBytes([&](const auto& take) { CudaActivations().Visit(spec, sizes, take); });
}

absl::StatusOr<CudaActivations> CudaActivations::Allocate(device::Device& device, const ModelSpec& spec,
                                                          const CudaSizes& sizes) {
  CudaActivations activations;
  MOE_ASSIGN_OR_RETURN(activations.memory_, device::AllocateArrays(device, "activations", [&](const auto& take) {
                         activations.Visit(spec, sizes, take);
                       }));
  return activations;
}

}  // namespace moestro
