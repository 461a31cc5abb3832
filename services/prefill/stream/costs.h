// What a step of a streamed run costs, as numbers of operations and bytes: what a device with a cost model charges.
#pragma once

#include "common/device/device.h"
#include "common/model/binding.h"
#include "common/weights/model_spec.h"
#include "services/prefill/stream/compute.h"

namespace moestro {

// Only shapes and types of the weights are looked at. Tokens are taken to be spread evenly over the experts,
// attention's keys and values to be expanded from the latents once a layer, and kernels to be those that a GPU's usual
// libraries have: a product each for gate, up and down, inputs rounded to FP8 by the kernel before.
device::KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, const PromptRun& run, const Step& step,
                            std::span<const StagedModule> modules);

}  // namespace moestro
