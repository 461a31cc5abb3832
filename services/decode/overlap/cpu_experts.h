// Routed experts on the CPU workers, weights read where they lie.
#pragma once

#include <cstdint>

#include "common/base/math.h"
#include "common/engine/decode_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/model/moe/expert_buffers.h"
#include "common/model/moe/expert_plan.h"
#include "common/platform/worker_pool.h"

namespace moestro::decode {

class CpuExperts final : public engine::RoutedExperts {
 public:
  // All outlive it. max_rows: of one call.
  CpuExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
             WorkerPool& pool, int64_t max_rows);
  absl::Status Run(int64_t layer, int64_t count, const engine::ExpertIo& rows) override;

  // rows.sums[row] += sum over the experts in `ids` that the plan has, in ascending id, of weight *
  // expert(rows.x[row]). One call at a time.
  void RunSlice(int64_t layer, IndexRange ids, const model::ExpertPlan& plan, const engine::ExpertIo& rows);

 private:
  const model::EngineContext context_;
  const model::ModelWeights& weights_;
  model::ExpertBuffers buffers_;
  model::ExpertPlan plan_;  // of Run
};

}  // namespace moestro::decode
