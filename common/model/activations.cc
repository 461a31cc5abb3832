#include "common/model/activations.h"

namespace moestro {
namespace {

int64_t AlwaysWidth(const ModelSpec& spec) {
  const int64_t dense = spec.first_dense_layers > 0 ? spec.intermediate_size : 0;
  return std::max(dense, spec.shared_intermediate_size());
}

std::vector<WorkerScratch> MakeWorkers(const ModelSpec& spec, int64_t max_rows, int threads) {
  std::vector<WorkerScratch> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(spec, max_rows);
  return workers;
}

}  // namespace

Activations::Activations(const ModelSpec& spec, int64_t max_rows, int threads)
    : residual(max_rows * spec.hidden_size),
      normed(max_rows * spec.hidden_size),
      normed_narrow(max_rows * spec.hidden_size),
      cosine(max_rows * spec.qk_rope_head_dim / 2),
      sine(max_rows * spec.qk_rope_head_dim / 2),
      q_a(max_rows * spec.q_lora_rank),
      q_a_narrow(max_rows * spec.q_lora_rank),
      q(max_rows * spec.num_heads * spec.qk_head_dim()),
      kv_a(max_rows * spec.kv_dim()),
      queries(spec.num_heads * std::max(max_rows * spec.qk_head_dim(), kAbsorbedRows * AbsorbedQueryDim(spec))),
      latents(kAbsorbedRows * spec.num_heads * spec.kv_lora_rank),
      attended(max_rows * AttendedStride(spec)),
      router_logits(max_rows * spec.num_experts),
      choices(max_rows * spec.experts_per_token),
      row_status(max_rows),
      gathered(max_rows * spec.experts_per_token * spec.hidden_size),
      routed_gated(max_rows * spec.experts_per_token * RowStride(spec.moe_intermediate_size)),
      always_gated(max_rows * RowStride(AlwaysWidth(spec))),
      logits(kLogitRows * spec.vocab_size),
      workers(MakeWorkers(spec, max_rows, threads)) {
  pieces.reserve(static_cast<size_t>(spec.num_experts));
}

int64_t ActivationBytes(const ModelSpec& spec, int64_t max_rows, int threads) {
  const int64_t attention = 4 * spec.q_lora_rank + 2 * spec.q_lora_rank + 4 * spec.kv_dim() +
                            6 * spec.num_heads * spec.qk_head_dim() + 2 * AttendedStride(spec);
  const int64_t experts = spec.experts_per_token * (2 * spec.hidden_size + 2 * RowStride(spec.moe_intermediate_size));
  const int64_t row = 10 * spec.hidden_size + 4 * spec.qk_rope_head_dim + attention + 4 * spec.num_experts + experts +
                      2 * RowStride(AlwaysWidth(spec)) + threads * 8 * kMaxTaskGroups * kRowGroup;
  return max_rows * row + kAbsorbedRows * spec.num_heads * 2 * (AbsorbedQueryDim(spec) + spec.kv_lora_rank) +
         4 * kLogitRows * spec.vocab_size;
}

}  // namespace moestro
