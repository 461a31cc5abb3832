// What a step of a streamed run costs, as numbers of operations and bytes: what a device with a cost model charges.
#pragma once

#include "common/device/device.h"
#include "common/model/binding.h"
#include "common/weights/model_spec.h"
#include "services/prefill/stream/compute.h"

namespace moestro {

// What a step has to do.
struct StepLoad {
  double rows = 0;           // that it computes
  double visible_pairs = 0;  // of a row and a position that it sees
  double context = 0;        // positions whose keys and values are expanded
  double routed_rows = 0;    // that the layer's experts share
  // Of the rows that an expert gets: standard deviation over mean. Below 0.57, because what they get is taken to be
  // spread evenly around the mean, the same number for the same expert of a layer every time.
  double expert_spread = 0;
};

// Of a pass of the prompt, its rows spread evenly over the experts.
StepLoad PassLoad(const PromptRun& run, int64_t pass);

// Only shapes and types of the weights are looked at. Attention's keys and values are taken to be expanded from the
// latents once a layer, and kernels to be those that a GPU's usual libraries have: a product each for gate, up and
// down, inputs rounded to FP8 by the kernel before.
device::KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, MlaForm form, const StepLoad& load,
                            const Step& step, std::span<const StagedModule> modules);
// Of a step that computes the rows of its pass.
device::KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, const PromptRun& run, const Step& step,
                            std::span<const StagedModule> modules);

}  // namespace moestro
