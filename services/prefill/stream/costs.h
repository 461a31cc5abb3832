// What a step of a streamed run costs: the load of its pass, and the part of the layer that it computes.
#pragma once

#include "common/device/device.h"
#include "common/engine/prefill_compute.h"
#include "common/model/binding.h"
#include "common/roofline/launch_costs.h"
#include "common/weights/model_spec.h"

namespace moestro {

// Of a pass of the prompt, its rows spread evenly over the experts.
StepLoad PassLoad(const PromptRun& run, int64_t pass);

device::KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, MlaForm form, const StepLoad& load,
                            const LayerStep& step, std::span<const StagedModule> modules);
// Of a step that computes the rows of its pass.
device::KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, const PromptRun& run,
                            const LayerStep& step, std::span<const StagedModule> modules);

}  // namespace moestro
