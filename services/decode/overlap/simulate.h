// What decode takes on a machine that is not here: the same lanes and turns, on a simulated device.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/device/sim/world.h"
#include "common/roofline/work_count.h"
#include "common/weights/model_spec.h"

namespace moestro::decode {

// `steps` steps, each of which gives every sequence one token. At the first one each has `context` tokens.
struct DecodeLoad {
  int64_t sequences = 1;
  int64_t context = 0;
  int lanes = 1;  // or 2, to cut every step in halves
  int64_t steps = 1;
};

// Seconds of the load. `model` counts the weights in their types; tokens are spread evenly over the experts.
// INVALID_ARGUMENT names the number of the machine that is missing.
absl::StatusOr<double> SimulateDecode(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                      const roofline::ModelCount& model, const DecodeLoad& load);
// In a world that others use at the same time. experts: what the experts read from, and who does; needs the machine's
// cpu_read_bytes_per_second, which is this user's rate. What they take longer alone, they wait.
absl::StatusOr<double> SimulateDecode(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                      const roofline::ModelCount& model, const DecodeLoad& load, device::World& world,
                                      device::World::Share experts);

// Seconds of one step. FP8 weights, BF16 head.
absl::StatusOr<double> SimulateDecodeStep(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                          int64_t sequences, int64_t context, int lanes);

}  // namespace moestro::decode
