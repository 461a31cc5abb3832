// Costs of a layer's launches, as a device with a cost model charges them. Uses only the shapes and types of the
// weights. Gate, up and down each count as one product.
#pragma once

#include "common/device/device.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// The load of a layer in one step.
struct StepLoad {
  double rows = 0;           // rows that it computes
  double visible_pairs = 0;  // pairs of a row and a position that the row sees
  double context = 0;        // positions whose keys and values are expanded
  double routed_rows = 0;    // rows of all the layer's experts together
  // Standard deviation over mean of the rows per expert. Below 0.57, because the model spreads them evenly around the
  // mean, with the same number for the same expert of a layer every time.
  double expert_spread = 0;
  // The type to which rows are rounded before a product with FP8 weights. kBF16, as in every kernel here: a product of
  // BF16 values. kF8E4M3: a product of FP8 values.
  DType activations = DType::kBF16;
  // Tiles into which rows are cut for their experts, one after the other: each reads the weights again, in launches of
  // its own.
  int64_t expert_tiles = 1;
  // The outputs of all the layer's experts are added up at once, behind the last. Rows are one tile then.
  bool adds_at_once = false;
};

// A kernel without products that reads and writes `numbers` BF16 elements per row.
device::KernelCost ElementwiseCost(double rows, int64_t elements);
// Attention with its norm and the addition to the residual. Keys and values are expanded from the latents once.
device::KernelCost AttentionCost(const weights::ModelSpec& spec, const model::AttentionWeights& weights,
                                 model::MlaForm form, const StepLoad& load);
// A dense MLP or the shared expert, and the addition to the residual.
device::KernelCost MlpCost(const weights::ModelSpec& spec, const model::MlpWeights& mlp, const StepLoad& load);
// The router with its norm and the choice of experts.
device::KernelCost RouterCost(const weights::ModelSpec& spec, const StepLoad& load);
// `count` experts together, with `routed` rows each: gathers the rows and adds the outputs to F32 sums. are_last: of
// the layer.
device::KernelCost ExpertsCost(const weights::ModelSpec& spec, const model::MlpWeights& expert, double count,
                               double routed, const StepLoad& load, bool are_last);
// Sorts rows of `chosen` choices each by their experts, tile by tile.
device::KernelCost SortCost(double rows, int64_t chosen, int64_t tiles);

}  // namespace moestro::roofline
