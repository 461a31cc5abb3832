// Routed experts whose weights a device holds. One implementation for every kind of kernel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/device/device.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/activations.h"
#include "common/model/binding.h"
#include "common/model/expert_plan.h"
#include "common/model/moe_progress.h"
#include "common/platform/worker_pool.h"

namespace moestro {

// An expert in device memory, for rows [begin, begin + count) of the input.
struct HotExpert {
  MlpWeights weights;
  int64_t begin = 0;
  int64_t count = 0;
};

class HotCompute {
 public:
  virtual ~HotCompute() = default;
  // Puts outputs[row] = expert(x[row]) for the rows of all experts, which lie one behind the other's, on the stream.
  // x: BF16, outputs: F32, both [rows, hidden] in device memory. REQUIRES: what the last call has put on its stream is
  // done.
  virtual absl::Status Run(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                           device::Stream& stream) = 0;
};

// On a device whose memory and kernels are the host's.
class HostHotCompute final : public HotCompute {
 public:
  // Spec and kernels outlive it. max_rows: of a step.
  HostHotCompute(const ModelSpec& spec, const CpuKernels& kernels, int64_t max_rows);
  absl::Status Run(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                   device::Stream& stream) override;

 private:
  const ModelSpec& spec_;
  const CpuKernels& kernels_;
  const int64_t max_rows_;
  WorkerPool pool_{1};
  Activations activations_;
  MoeProgress progress_;
  // Of the call.
  ExpertPlan plan_;
  std::vector<MlpWeights> weights_;
  const uint16_t* x_ = nullptr;
  float* outputs_ = nullptr;
};

}  // namespace moestro
