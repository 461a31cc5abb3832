#include "services/prefill/stream/simulate.h"

#include <vector>

#include "common/base/status.h"
#include "common/device/sim/sim_device.h"
#include "common/engine/host/prompt_forward.h"
#include "common/roofline/shapes.h"
#include "common/weights/format.h"
#include "common/weights/tensor_size.h"
#include "services/prefill/stream/costs.h"
#include "services/prefill/stream/stream_prefill.h"

namespace moestro {

int64_t SimCompute::ActivationBytes(int64_t pass_rows) const {
  return PromptForwardBytes(spec_, /*threads=*/0,
                            {.max_rows = pass_rows, .tile_rows = std::min(kGpuTileRows, pass_rows)});
}

absl::Status SimCompute::Begin(const PromptRun& run) {
  run_ = run;
  return absl::OkStatus();
}

absl::Status SimCompute::Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                                const std::atomic<bool>&) {
  StepLoad load = PassLoad(run_, step.pass);
  load.expert_spread = costs_.expert_spread;
  load.activations = costs_.activations;
  return stream.Launch(
      {.name = StepName(step.kind), .cost = StepCost(spec_, weights_, run_.form, load, step, modules), .run = {}});
}

absl::Status SimCompute::Store(const LayerStep& step, device::Stream& stream) {
  constexpr int64_t kBytes = 2;  // BF16
  return stream.CopyToHost(nullptr, nullptr, run_.PassRows(step.pass).size() * spec_.kv_dim() * kBytes);
}

absl::StatusOr<SimulatedPrefill> SimulatePrefill(const device::HardwareSpec& hardware, const ModelSpec& spec,
                                                 DType linear, MlaForm form, int64_t tokens, const MemoryLimits& limits,
                                                 const CostOptions& costs) {
  const std::unique_ptr<device::Device> device = device::NewSimDevice(hardware);
  const ModelWeights weights = ShapesOnly(spec, linear);
  SimCompute compute(spec, weights, costs);
  StreamPrefill prefill(*device, spec, weights, compute, limits);
  std::vector<EngineRow> rows(tokens);
  for (int64_t i = 0; i < tokens; ++i) rows[i].position = static_cast<int32_t>(i);
  SimulatedPrefill result;
  MOE_ASSIGN_OR_RETURN(result.plan, prefill.Plan(tokens, form));
  MOE_RETURN_IF_ERROR(prefill.Run(
      rows, {}, form, [] { return absl::OkStatus(); }, {}, [](int64_t, std::span<const float>) {}));
  result.report = prefill.report();
  return result;
}

}  // namespace moestro
