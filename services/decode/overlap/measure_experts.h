// What routed experts take on this machine, measured (HybriMoE, section IV-A).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/experts/expert_costs.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/device_experts.h"

namespace moestro::decode {

struct MeasuredExperts {
  const weights::ModelSpec& spec;
  CpuExperts& cpu;
  DeviceExperts& device;
  int64_t slots = 0;  // of the device's experts; what they hold is lost
  int64_t max_rows = 0;
};

// Runs one expert and some more with 1, 2, 4, ... rows up to max_rows, on the CPU and on the device in turn, of other
// layers each time, and takes the medians. Then both at once: they take each other's memory bandwidth, and on the
// host's device cores too.
absl::StatusOr<experts::ExpertCosts> MeasureExpertCosts(const MeasuredExperts& experts, const device::Device& clock);

}  // namespace moestro::decode
