// What launches of a layer's parts cost: what a device with a cost model charges. Only shapes and types of the weights
// are looked at. Gate, up and down are taken to be a product each.
#pragma once

#include "common/device/device.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro {

// What a step of a layer has to do.
struct StepLoad {
  double rows = 0;           // that it computes
  double visible_pairs = 0;  // of a row and a position that it sees
  double context = 0;        // positions whose keys and values are expanded
  double routed_rows = 0;    // that the layer's experts share
  // Of the rows that an expert gets: standard deviation over mean. Below 0.57, because what they get is taken to be
  // spread evenly around the mean, the same number for the same expert of a layer every time.
  double expert_spread = 0;
  // What rows are rounded to before they are multiplied with FP8 weights: kBF16, as every kernel here does, and the
  // product is one of BF16 numbers; or kF8E4M3, a product of FP8 numbers, for which there is no kernel.
  DType activations = DType::kBF16;
};

// A kernel that reads and writes so many BF16 numbers of each row, and multiplies nothing.
device::KernelCost ElementwiseCost(double rows, int64_t numbers);
// Attention with its norm and the sum with the residual. Keys and values are expanded from the latents once.
device::KernelCost AttentionCost(const ModelSpec& spec, const AttentionWeights& weights, MlaForm form,
                                 const StepLoad& load);
// A dense MLP or the shared expert, and the sum with the residual.
device::KernelCost MlpCost(const ModelSpec& spec, const MlpWeights& mlp, const StepLoad& load);
// The router with its norm and the choice of experts.
device::KernelCost RouterCost(const ModelSpec& spec, const StepLoad& load);
// `count` experts in a launch, each with `routed` rows, which are brought together and added to sums in F32.
device::KernelCost ExpertsCost(const ModelSpec& spec, const MlpWeights& expert, double count, double routed,
                               DType activations);

}  // namespace moestro
