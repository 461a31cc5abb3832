// Routed experts that a device holds, where its memory and kernels are the host's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/engine/decode_compute.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/model/moe/expert_buffers.h"
#include "common/model/moe/expert_plan.h"
#include "common/platform/worker_pool.h"

namespace moestro {

class HostHotCompute final : public HotCompute {
 public:
  // Spec and kernels outlive it. max_rows: of a step.
  HostHotCompute(const ModelSpec& spec, const CpuKernels& kernels, int64_t max_rows);
  absl::Status Run(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                   device::Stream& stream) override;

 private:
  WorkerPool pool_{1};
  const EngineContext context_;
  ExpertBuffers buffers_;
  // Of the call.
  ExpertPlan plan_;
  std::vector<MlpWeights> weights_;
  const uint16_t* x_ = nullptr;
  float* outputs_ = nullptr;
};

}  // namespace moestro
