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
  const ScopedAffinity pinned = context_.pool.PinCaller();
  model::RunExperts({context_, buffers_}, {weights_.layers[layer].feed_forward.experts, 0}, plan_, rows.x, rows.sums);
  return absl::OkStatus();
}

void CpuExperts::RunOutputs(int64_t layer, const model::ExpertPlan& plan, const uint16_t* x, float* outputs) {
  const ScopedAffinity pinned = context_.pool.PinCaller();
  model::RunExpertOutputs({context_, buffers_}, {weights_.layers[layer].feed_forward.experts, 0}, plan, x, outputs);
}

}  // namespace moestro::decode
