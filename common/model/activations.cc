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
      queries(spec.num_heads * std::max(max_rows * spec.qk_head_dim(), kAbsorbedRows * spec.kv_dim())),
      latents(kAbsorbedRows * spec.num_heads * spec.kv_lora_rank),
      attended(max_rows * RowStride(spec.num_heads * spec.v_head_dim)),
      router_logits(max_rows * spec.num_experts),
      choices(max_rows * spec.experts_per_token),
      row_status(max_rows),
      gathered(max_rows * spec.experts_per_token * spec.hidden_size),
      routed_gated(max_rows * spec.experts_per_token * RowStride(spec.moe_intermediate_size)),
      always_gated(max_rows * RowStride(AlwaysWidth(spec))),
      logits(kLogitRows * spec.vocab_size),
      workers(MakeWorkers(spec, max_rows, threads)) {}

}  // namespace moestro
