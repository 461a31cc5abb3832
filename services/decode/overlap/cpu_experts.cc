#include "services/decode/overlap/cpu_experts.h"

#include <algorithm>

#include "common/model/moe/moe.h"

namespace moestro::decode {

CpuExperts::CpuExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
                       WorkerPool& pool, int64_t max_rows)
    : context_{spec, kernels, pool}, weights_(weights), buffers_(spec, max_rows, pool.threads(), /*dense_width=*/0) {}

absl::Status CpuExperts::Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) {
  const weights::ModelSpec& spec = context_.spec;
  const auto choices = std::span(rows.choices, static_cast<size_t>(count * spec.experts_per_token));
  plan_.Sort(choices, spec.experts_per_token, spec.num_experts);
  std::fill_n(rows.sums, count * spec.hidden_size, 0.0f);
  RunSlice(layer, {0, spec.num_experts}, plan_, rows);
  return absl::OkStatus();
}

void CpuExperts::RunSlice(int64_t layer, IndexRange ids, const model::ExpertPlan& plan, const engine::ExpertIo& rows) {
  const ScopedAffinity pinned = context_.pool.PinCaller();
  const auto experts = std::span(weights_.layers[layer].feed_forward.experts)
                           .subspan(static_cast<size_t>(ids.begin), static_cast<size_t>(ids.size()));
  model::RunExperts({context_, buffers_}, {experts, ids.begin}, plan, rows.x, rows.sums);
}

}  // namespace moestro::decode
