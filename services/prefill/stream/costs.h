// What a step of a streamed run costs, as numbers of operations and bytes: what a device with a cost model charges.
#pragma once

#include "common/device/device.h"
#include "common/model/binding.h"
#include "common/weights/model_spec.h"
#include "services/prefill/stream/compute.h"

namespace moestro {

// Only shapes and types of the weights are looked at. Tokens are taken to be spread evenly over the experts, and
// attention's keys and values to be expanded from the latents once a layer.
device::KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, const PromptRun& run, const Step& step);

}  // namespace moestro
