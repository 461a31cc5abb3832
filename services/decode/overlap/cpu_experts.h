// Routed experts on the CPU workers, weights read where they lie.
#pragma once

#include <cstdint>

#include "common/base/math.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/activations.h"
#include "common/model/binding.h"
#include "common/model/expert_plan.h"
#include "common/model/moe_progress.h"
#include "common/platform/worker_pool.h"
#include "services/decode/overlap/compute.h"

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
  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const CpuKernels& kernels_;
  WorkerPool& pool_;
  const int64_t max_rows_;
  Activations activations_;
  MoeProgress progress_;
  ExpertPlan plan_;  // of Run
};

}  // namespace moestro
