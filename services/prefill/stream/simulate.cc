#include "services/prefill/stream/simulate.h"

#include <vector>

#include "common/base/status.h"
#include "common/device/sim/sim_device.h"
#include "common/roofline/shapes.h"
#include "services/prefill/stream/stream_prefill.h"

namespace moestro::prefill {

absl::StatusOr<SimulatedPrefill> SimulatePrefill(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                                 DType linear, model::MlaForm form, int64_t tokens,
                                                 const MemoryLimits& limits, const engine::CostOptions& costs,
                                                 int64_t cached, const device::SimView* view) {
  const std::unique_ptr<device::Device> device =
      view != nullptr ? device::NewSimDevice(hardware, *view) : device::NewSimDevice(hardware);
  const model::ModelWeights weights = roofline::ShapesOnly(spec, linear);
  engine::SimPrefill compute(spec, weights, costs);
  StreamPrefill prefill(*device, spec, weights, compute, limits);
  std::vector<model::EngineRow> rows(tokens);
  for (int64_t i = 0; i < tokens; ++i) rows[i].position = static_cast<int32_t>(cached + i);
  SimulatedPrefill result;
  MOE_ASSIGN_OR_RETURN(result.plan, prefill.Plan(tokens, form));
  MOE_RETURN_IF_ERROR(prefill.Run(
      rows, {}, form, [] { return absl::OkStatus(); }, {}, [](int64_t, std::span<const float>) {}));
  result.report = prefill.report();
  return result;
}

}  // namespace moestro::prefill
