// Routed experts on the CPU workers, weights read where they lie.
#pragma once

#include <cstdint>

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

  // outputs[i] = expert(x[plan.routed[i].row]), F32 [routed, hidden]. One call at a time.
  void RunOutputs(int64_t layer, const model::ExpertPlan& plan, const uint16_t* x, float* outputs);

 private:
  const model::EngineContext context_;
  const model::ModelWeights& weights_;
  model::ExpertBuffers buffers_;
  model::ExpertPlan plan_;  // of Run
};

}  // namespace moestro::decode
