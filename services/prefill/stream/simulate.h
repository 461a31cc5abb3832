// How long a streamed prefill would take on a machine that is not here: the same pipeline on a simulated device.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/engine/prefill_compute.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "services/prefill/stream/memory_plan.h"
#include "services/prefill/stream/pipeline.h"

namespace moestro {

// Rows that a GPU takes through attention and the router together: many enough to fill it, few enough that their
// queries (0.4 MB a row for DeepSeek-V3) stay below 2 GB.
inline constexpr int64_t kGpuTileRows = 4096;

// What a simulation takes for granted: StepLoad's.
struct CostOptions {
  double expert_spread = 0;
  DType activations = DType::kBF16;
};

// Every step costs what StepCost says; keys and values go back to the host.
class SimCompute final : public PrefillCompute {
 public:
  // spec and weights outlive it.
  SimCompute(const ModelSpec& spec, const ModelWeights& weights, const CostOptions& costs = {})
      : spec_(spec), weights_(weights), costs_(costs) {}

  int64_t ActivationBytes(int64_t pass_rows) const override;
  absl::Status CheckForm(MlaForm) const override { return absl::OkStatus(); }
  absl::Status Begin(const PromptRun& run) override;
  absl::Status Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                      const std::atomic<bool>& stopped) override;
  absl::Status Store(const LayerStep& step, device::Stream& stream) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    return absl::OkStatus();
  }
  void End() override {}

 private:
  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const CostOptions costs_;
  PromptRun run_;
};

struct SimulatedPrefill {
  MemoryPlan plan;
  PipelineReport report;  // in simulated seconds
};

// A prompt of `tokens` new tokens, nothing of it cached. limits.device_bytes 0: the machine's GPU memory.
absl::StatusOr<SimulatedPrefill> SimulatePrefill(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                                 DType linear, MlaForm form, int64_t tokens, const MemoryLimits& limits,
                                                 const CostOptions& costs = {});

}  // namespace moestro
