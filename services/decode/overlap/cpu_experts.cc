#include "services/decode/overlap/cpu_experts.h"

#include <algorithm>

#include "common/model/moe.h"

namespace moestro {

CpuExperts::CpuExperts(const ModelSpec& spec, const ModelWeights& weights, const CpuKernels& kernels, WorkerPool& pool,
                       int64_t max_rows)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      pool_(pool),
      max_rows_(max_rows),
      activations_(spec, max_rows, pool.threads()),
      progress_(spec) {}

absl::Status CpuExperts::Run(int64_t layer, int64_t count, const HandOver& rows) {
  const auto choices = std::span(rows.choices, static_cast<size_t>(count * spec_.experts_per_token));
  plan_.Sort(choices, spec_.experts_per_token, spec_.num_experts);
  std::fill_n(rows.sums, count * spec_.hidden_size, 0.0f);
  RunSlice(layer, {0, spec_.num_experts}, plan_, rows);
  return absl::OkStatus();
}

void CpuExperts::RunSlice(int64_t layer, IndexRange ids, const ExpertPlan& plan, const HandOver& rows) {
  const ScopedAffinity pinned = pool_.PinCaller();
  const auto experts = std::span(weights_.layers[layer].feed_forward.experts)
                           .subspan(static_cast<size_t>(ids.begin), static_cast<size_t>(ids.size()));
  RunExperts({spec_, kernels_, pool_, activations_, progress_}, max_rows_, {experts, ids.begin}, plan, rows.x,
             rows.sums);
}

}  // namespace moestro
