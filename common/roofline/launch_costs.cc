#include "common/roofline/launch_costs.h"

#include <algorithm>

#include "common/roofline/work_count.h"

namespace moestro::roofline {
namespace {

using device::KernelCost;

constexpr int64_t kBf16 = 2;  // bytes

// Adds launches, one for each tile of rows, that multiply `rows` rows with each of `count` such matrices. Outputs are
// BF16.
void AddLinear(const PackedMatrix& matrix, double rows, DType activations, KernelCost& cost, double count = 1,
               int64_t tiles = 1) {
  if (matrix.rows == 0) return;
  const WeightCount weights = CountWeights(matrix);
  const bool fp8 = matrix.dtype == DType::kF8E4M3 && activations == DType::kF8E4M3;
  const int64_t input_bytes = DTypeBytes(fp8 ? DType::kF8E4M3 : DType::kBF16);
  (fp8 ? cost.fp8_flops : cost.bf16_flops) += count * 2 * rows * weights.elements;
  (fp8 ? cost.fp8_depth : cost.bf16_depth) += static_cast<double>(tiles * matrix.cols);
  const double row_bytes = static_cast<double>(input_bytes * matrix.cols + kBf16 * matrix.rows);
  cost.memory_bytes += count * (static_cast<double>(tiles) * weights.bytes + rows * row_bytes);
  cost.kernels += tiles;
}

void AddElementwise(double rows, int64_t elements, KernelCost& cost) {
  cost.elementwise_bytes += rows * static_cast<double>(elements * kBf16);
  ++cost.kernels;
}

void AddMlp(const model::MlpWeights& mlp, double rows, DType activations, KernelCost& cost, double count = 1,
            int64_t tiles = 1) {
  AddLinear(mlp.gate, rows, activations, cost, count, tiles);
  AddLinear(mlp.up, rows, activations, cost, count, tiles);
  AddLinear(mlp.down, rows, activations, cost, count, tiles);
  AddElementwise(count * rows, 3 * mlp.gate.rows, cost);  // silu(gate) * up
}

}  // namespace

KernelCost ElementwiseCost(double rows, int64_t elements) {
  KernelCost cost{.kernels = 0};
  AddElementwise(rows, elements, cost);
  return cost;
}

KernelCost AttentionCost(const weights::ModelSpec& spec, const model::AttentionWeights& w, model::MlaForm form,
                         const StepLoad& load) {
  KernelCost cost{.kernels = 1};  // the attention kernel
  const double rows = load.rows;
  for (const PackedMatrix* matrix : {&w.q_a, &w.q_b, &w.kv_a, &w.k, &w.v, &w.o}) {
    AddLinear(*matrix, rows, load.activations, cost);
  }
  // Absorbed form: the transposed key half multiplies queries, the value half multiplies the attention output.
  AddLinear(w.kv_b, form == model::MlaForm::kAbsorbed ? rows : load.context, load.activations, cost);
  const double within = w.window == 0 ? load.visible_pairs : rows * static_cast<double>(w.window);
  cost.attention_flops = AttentionFlops(spec, form, std::min(load.visible_pairs, within));
  AddElementwise(rows, 2 * spec.hidden_size, cost);                     // norm
  AddElementwise(rows, 2 * (spec.q_lora_rank + spec.kv_dim()), cost);   // norms of low-rank vectors or heads
  AddElementwise(rows, 2 * spec.num_heads * spec.qk_head_dim(), cost);  // rotation
  if (w.q_bias != nullptr) AddElementwise(rows, 2 * (w.q_b.rows + spec.kv_dim()), cost);
  AddElementwise(rows, 2 * spec.kv_dim(), cost);     // writing to the cache
  AddElementwise(rows, 3 * spec.hidden_size, cost);  // adding to the residual
  return cost;
}

KernelCost MlpCost(const weights::ModelSpec& spec, const model::MlpWeights& mlp, const StepLoad& load) {
  KernelCost cost{.kernels = 0};
  AddMlp(mlp, load.rows, load.activations, cost);
  AddElementwise(load.rows, 3 * spec.hidden_size, cost);  // adding to the residual
  return cost;
}

KernelCost RouterCost(const weights::ModelSpec& spec, const StepLoad& load) {
  KernelCost cost = ElementwiseCost(load.rows, 2 * spec.hidden_size);  // norm
  AddLinear({.dtype = DType::kBF16, .rows = spec.num_experts, .cols = spec.hidden_size}, load.rows, load.activations,
            cost);
  AddElementwise(load.rows, spec.num_experts, cost);  // choice of experts
  return cost;
}

KernelCost ExpertsCost(const weights::ModelSpec& spec, const model::MlpWeights& expert, double count, double routed,
                       const StepLoad& load, bool are_last) {
  KernelCost cost = ElementwiseCost(count * routed, 2 * spec.hidden_size);  // gathering the expert's rows
  AddMlp(expert, routed, load.activations, cost, count, load.expert_tiles);
  // Of a tile: gate and up in one launch, then down, each of them once for large tiles of tokens and once for small
  // ones; FP8 inputs of both are rounded by launches of their own.
  constexpr int64_t kProducts = 4, kRoundings = 2;
  const bool rounds = expert.gate.dtype == DType::kF8E4M3 && load.activations == DType::kF8E4M3;
  cost.kernels = load.expert_tiles * (kProducts + (rounds ? kRoundings : 0));
  if (!load.adds_at_once) {  // to the F32 sums of a tile's rows
    AddElementwise(count * routed, 5 * spec.hidden_size, cost);
    cost.kernels += load.expert_tiles - 1;
  } else if (are_last) {  // reads all F32 outputs of a row, and writes their sum
    AddElementwise(load.routed_rows, 2 * (spec.experts_per_token + 1) * spec.hidden_size, cost);
  }
  return cost;
}

KernelCost SortCost(double rows, int64_t chosen, int64_t tiles) {
  constexpr int64_t kCountPlanFill = 3;
  const double choice_bytes = static_cast<double>(sizeof(model::ExpertChoice));
  return {.elementwise_bytes = 2 * rows * static_cast<double>(chosen) * choice_bytes,
          .kernels = kCountPlanFill * tiles};
}

}  // namespace moestro::roofline
