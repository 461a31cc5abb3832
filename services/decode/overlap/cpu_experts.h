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

namespace moestro {

class CpuExperts final : public RoutedExperts {
 public:
  // All outlive it. max_rows: of one call.
  CpuExperts(const ModelSpec& spec, const ModelWeights& weights, const CpuKernels& kernels, WorkerPool& pool,
             int64_t max_rows);
  absl::Status Run(int64_t layer, int64_t count, const HandOver& rows) override;

  // rows.sums[row] += sum over the experts in `ids` that the plan has, in ascending id, of weight *
  // expert(rows.x[row]). One call at a time.
  void RunSlice(int64_t layer, IndexRange ids, const ExpertPlan& plan, const HandOver& rows);

 private:
  const EngineContext context_;
  const ModelWeights& weights_;
  ExpertBuffers buffers_;
  ExpertPlan plan_;  // of Run
};

}  // namespace moestro
