// A prompt on one device as costs: the load of a pass, and the operations and bytes of the layer's part that a step
// computes. Nothing is computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "common/device/device.h"
#include "common/engine/cuda/activations.h"
#include "common/engine/prefill_compute.h"
#include "common/model/binding.h"
#include "common/roofline/launch_costs.h"
#include "common/weights/model_spec.h"

namespace moestro::engine {

// Of a pass of the prompt, its rows spread evenly over the experts.
roofline::StepLoad PassLoad(const PromptRun& run, int64_t pass);

device::KernelCost StepCost(const weights::ModelSpec& spec, const model::ModelWeights& weights, model::MlaForm form,
                            const roofline::StepLoad& load, const LayerStep& step,
                            std::span<const StagedModule> modules);

// What a simulation takes for granted: StepLoad's.
struct CostOptions {
  double expert_spread = 0;
  DType activations = DType::kBF16;
  // Rows are cut into tiles for their experts as the kernels here cut them; no: each expert gets all its rows at once.
  bool cuts_rows = true;
};

// Every step costs what StepCost says; keys and values go back to the host. The memory is that of the CUDA kernels
// (cuda/activations.h), and so are the tiles of rows for which it suffices.
class SimPrefill final : public PrefillCompute {
 public:
  // spec and weights outlive it.
  SimPrefill(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CostOptions& costs = {})
      : spec_(spec), weights_(weights), costs_(costs) {}

  int64_t ActivationBytes(int64_t pass_rows) const override;
  absl::Status CheckForm(model::MlaForm) const override { return absl::OkStatus(); }
  absl::Status Begin(const PromptRun& run) override;
  absl::Status Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                      const std::atomic<bool>& stopped) override;
  absl::Status Store(const LayerStep& step, device::Stream& stream) override;
  absl::Status Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)>) override {
    return absl::OkStatus();
  }
  void End() override {}

 private:
  CudaSizes Sizes(int64_t pass_rows) const;

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  const CostOptions costs_;
  PromptRun run_;
  int64_t tile_rows_ = 0;  // of the run
};

}  // namespace moestro::engine
