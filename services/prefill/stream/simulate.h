// How long a streamed prefill would take on a machine that is not here: the same pipeline on a simulated device.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/device/sim/sim_device.h"
#include "common/engine/sim/sim_prefill.h"
#include "common/model/engine.h"
#include "services/prefill/stream/memory_plan.h"
#include "services/prefill/stream/pipeline.h"

namespace moestro::prefill {

struct SimulatedPrefill {
  MemoryPlan plan;
  PipelineReport report;  // in simulated seconds
};

// A prompt of `tokens` new tokens after `cached` cached ones. limits.device_bytes 0: the machine's GPU memory.
// view: in the world that others use at the same time; none: in one of its own.
absl::StatusOr<SimulatedPrefill> SimulatePrefill(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                                 DType linear, model::MlaForm form, int64_t tokens,
                                                 const MemoryLimits& limits, const engine::CostOptions& costs = {},
                                                 int64_t cached = 0, const device::SimView* view = nullptr);

}  // namespace moestro::prefill
