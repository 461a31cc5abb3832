// What a decode step takes on a machine that is not here: the same lanes and turns, on a simulated device.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/device/sim/hardware.h"
#include "common/weights/model_spec.h"

namespace moestro::decode {

// Seconds of a step that gives `sequences` sequences, which have `context` tokens each, one token. FP8 weights, BF16
// head, tokens spread evenly over the experts. lanes: 1, or 2 to cut the step in halves. INVALID_ARGUMENT names the
// number of the machine that is missing.
absl::StatusOr<double> SimulateDecodeStep(const device::HardwareSpec& hardware, const weights::ModelSpec& spec,
                                          int64_t sequences, int64_t context, int lanes);

}  // namespace moestro::decode
