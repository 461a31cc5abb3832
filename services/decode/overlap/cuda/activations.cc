#include "services/decode/overlap/cuda/activations.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/device/arrays.h"
#include "common/kernels/cuda/call.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/model/attention.h"

namespace moestro {

// Calls take(pointer&, numbers) for every array. The one list of them.
template <typename Take>
void DecodeActivations::Visit(const ModelSpec& spec, int64_t rows, const Take& take) {
  const int64_t hidden = spec.hidden_size, heads = spec.num_heads, latent = spec.kv_lora_rank;
  const int64_t together = std::min(rows, kAttendRows) * cuda::kMaxSplits * heads;
  take(x, rows * hidden);
  take(choices, rows * spec.experts_per_token);
  take(sums, rows * hidden);
  take(projected, rows * std::max({spec.q_lora_rank, spec.kv_dim(), heads * spec.qk_head_dim()}));
  if (spec.q_lora_rank > 0) take(query_input, rows * cuda::InputStride(spec.q_lora_rank));
  take(queries, rows * heads * spec.qk_head_dim());
  if (latent > 0) take(latents, rows * heads * latent);
  take(partial, together * SumWidth(spec, MlaForm::kAbsorbed));
  take(log_sum, together);
  take(attended, rows * cuda::InputStride(heads * spec.v_head_dim));
  take(entries, spec.num_layers * rows * spec.kv_dim());
  take(normed, rows * hidden);
  take(router_logits, rows * spec.num_experts);
  take(gated, rows * cuda::InputStride(std::max(spec.intermediate_size, spec.shared_intermediate_size())));
  take(shared, rows * hidden);
}

int64_t DecodeActivations::Bytes(const ModelSpec& spec, int64_t rows) {
  return device::ArrayBytes([&](const auto& take) { DecodeActivations().Visit(spec, rows, take); });
}

absl::StatusOr<DecodeActivations> DecodeActivations::Allocate(device::Device& device, const ModelSpec& spec,
                                                              int64_t rows) {
  DecodeActivations activations;
  MOE_ASSIGN_OR_RETURN(activations.memory_, device::AllocateArrays(device, "activations", [&](const auto& take) {
                         activations.Visit(spec, rows, take);
                       }));
  return activations;
}

}  // namespace moestro
