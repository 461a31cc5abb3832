// How long a streamed prefill would take on a machine that is not here: the same pipeline on a simulated device.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "services/prefill/stream/compute.h"
#include "services/prefill/stream/memory_plan.h"
#include "services/prefill/stream/pipeline.h"

namespace moestro {

// Weights of the right shapes and sizes, laid out as in a segment, at addresses that nobody may read. All linear layers
// have the type `linear`; embedding and head are BF16.
ModelWeights ShapesOnly(const ModelSpec& spec, DType linear);

// Rows that a GPU takes through attention and the router together: many enough to fill it, few enough that their
// queries (0.4 MB a row for DeepSeek-V3) stay below 2 GB.
inline constexpr int64_t kGpuTileRows = 4096;

// Every step costs what StepCost says; keys and values go back to the host.
class SimCompute final : public StreamCompute {
 public:
  // Both outlive it. expert_spread: StepLoad's.
  SimCompute(const ModelSpec& spec, const ModelWeights& weights, double expert_spread = 0)
      : spec_(spec), weights_(weights), expert_spread_(expert_spread) {}

  int64_t ActivationBytes(int64_t pass_rows) const override;
  absl::Status Begin(const PromptRun& run) override;
  absl::Status Launch(const Step& step, std::span<const StagedModule> modules, device::Stream& stream,
                      const std::atomic<bool>& stopped) override;
  absl::Status Store(const Step& step, device::Stream& stream) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    return absl::OkStatus();
  }
  void End() override {}

 private:
  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const double expert_spread_;
  PromptRun run_;
};

struct SimulatedPrefill {
  MemoryPlan plan;
  PipelineReport report;  // in simulated seconds
};

// A prompt of `tokens` new tokens, nothing of it cached. limits.device_bytes 0: the machine's GPU memory.
// expert_spread: StepLoad's.
absl::StatusOr<SimulatedPrefill> SimulatePrefill(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                                 DType linear, MlaForm form, int64_t tokens, const MemoryLimits& limits,
                                                 double expert_spread = 0);

}  // namespace moestro
