#include "services/prefill/stream/costs.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/model/attention.h"

namespace moestro {
namespace {

using device::KernelCost;

constexpr int64_t kBf16 = 2;  // bytes
constexpr int64_t kF32 = 4;

double Numbers(const PackedMatrix& matrix) {
  return static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
}
double Bytes(const PackedMatrix& matrix) { return Numbers(matrix) * static_cast<double>(DTypeBytes(matrix.dtype)); }

// A launch that multiplies `rows` rows with each of `count` such matrices. Inputs have the type of the weights, outputs
// are BF16.
void AddLinear(const PackedMatrix& matrix, double rows, KernelCost& cost, double count = 1) {
  if (matrix.rows == 0) return;
  const bool fp8 = matrix.dtype == DType::kF8E4M3;
  (fp8 ? cost.fp8_flops : cost.bf16_flops) += count * 2 * rows * Numbers(matrix);
  (fp8 ? cost.fp8_depth : cost.bf16_depth) += static_cast<double>(matrix.cols);
  const double row_bytes = static_cast<double>(DTypeBytes(matrix.dtype) * matrix.cols + kBf16 * matrix.rows);
  cost.memory_bytes += count * (Bytes(matrix) + rows * row_bytes);
  ++cost.kernels;
}

// A kernel that reads and writes so many numbers of each row.
void AddElementwise(double rows, int64_t numbers, KernelCost& cost) {
  cost.elementwise_bytes += rows * static_cast<double>(numbers * kBf16);
  ++cost.kernels;
}

void AddMlp(const MlpWeights& mlp, double rows, KernelCost& cost, double count = 1) {
  AddLinear(mlp.gate, rows, cost, count);
  AddLinear(mlp.up, rows, cost, count);
  AddLinear(mlp.down, rows, cost, count);
  AddElementwise(count * rows, 3 * mlp.gate.rows, cost);  // silu(gate) * up
}

void AddAttention(const ModelSpec& spec, const AttentionWeights& w, MlaForm form, const StepLoad& load,
                  KernelCost& cost) {
  const double rows = load.rows;
  const auto heads = static_cast<double>(spec.num_heads);
  AddLinear(w.q_a, rows, cost);
  AddLinear(w.q_b, rows, cost);
  AddLinear(w.kv_a, rows, cost);
  AddLinear(w.k, rows, cost);
  AddLinear(w.v, rows, cost);
  AddLinear(w.o, rows, cost);
  // Absorbed: its key half transposed, on queries; its value half on what was attended.
  AddLinear(w.kv_b, form == MlaForm::kAbsorbed ? rows : load.context, cost);
  cost.attention_flops += 2 * heads * static_cast<double>(PairProducts(spec, form)) * load.visible_pairs;
  const int64_t queries = spec.num_heads * spec.qk_head_dim();
  AddElementwise(rows, 2 * spec.hidden_size, cost);                    // norm
  AddElementwise(rows, 2 * (spec.q_lora_rank + spec.kv_dim()), cost);  // norms of the ranks or heads
  AddElementwise(rows, 2 * queries, cost);                             // rotation
  AddElementwise(rows, 2 * spec.kv_dim(), cost);                       // writing the cache
  AddElementwise(rows, 3 * spec.hidden_size, cost);                    // adding to the residual
  ++cost.kernels;                                                      // attention itself
}

// Rows that each of these experts gets on average.
double RowsOfAnExpert(const ModelSpec& spec, const StepLoad& load, int64_t layer,
                      std::span<const StagedModule> modules) {
  const double mean =
      load.routed_rows * static_cast<double>(spec.experts_per_token) / static_cast<double>(spec.num_experts);
  if (load.expert_spread == 0) return mean;
  // Multiples of the golden ratio cover [0, 1) evenly, and neighbours are no more alike than others.
  constexpr double kGoldenRatio = std::numbers::phi;
  constexpr double kWidthOverDeviation = 2 * std::numbers::sqrt3;  // of an even distribution
  double sum = 0;
  for (const StagedModule& staged : modules) {
    const double turns = kGoldenRatio * static_cast<double>(staged.module->index + layer * spec.num_experts);
    sum += 1 + kWidthOverDeviation * load.expert_spread * (turns - std::floor(turns) - 0.5);
  }
  return mean * sum / static_cast<double>(modules.size());
}

}  // namespace

KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, MlaForm form, const StepLoad& load,
                    const Step& step, std::span<const StagedModule> modules) {
  KernelCost cost{.kernels = 0};
  const double rows = load.rows;
  const LayerWeights* layer = step.layer < std::ssize(weights.layers) ? &weights.layers[step.layer] : nullptr;
  switch (step.kind) {
    case StepKind::kEmbed:
      AddElementwise(rows, 2 * spec.hidden_size, cost);
      break;
    case StepKind::kAttention:
      AddAttention(spec, layer->attention, form, load, cost);
      break;
    case StepKind::kDense:
    case StepKind::kSharedExpert:
      AddMlp(layer->feed_forward.always, rows, cost);
      AddElementwise(rows, 3 * spec.hidden_size, cost);  // adding to the residual
      break;
    case StepKind::kRoute:
      AddElementwise(rows, 2 * spec.hidden_size, cost);  // norm
      AddLinear({.dtype = DType::kBF16, .rows = spec.num_experts, .cols = spec.hidden_size}, rows, cost);
      AddElementwise(rows, spec.num_experts, cost);  // choosing
      break;
    case StepKind::kExperts: {
      const auto experts = static_cast<double>(modules.size());
      const double routed = RowsOfAnExpert(spec, load, step.layer, modules);
      AddElementwise(experts * routed, 2 * spec.hidden_size, cost);  // bringing an expert's rows together
      AddMlp(layer->feed_forward.experts.front(), routed, cost, experts);
      AddElementwise(experts * routed, 5 * spec.hidden_size, cost);  // adding to sums in F32
      break;
    }
    case StepKind::kDispatch:
    case StepKind::kCombine:
      break;               // what they launch is no cost of the step alone
    case StepKind::kHead:  // of a row or few
      cost.memory_bytes = static_cast<double>(modules[0].module->image.bytes);
      cost.kernels = 1;
      break;
  }
  return cost;
}

StepLoad PassLoad(const PromptRun& run, int64_t pass_index) {
  const IndexRange pass = run.PassRows(pass_index);
  const auto rows = static_cast<double>(pass.size());
  const auto before = static_cast<double>(run.rows[pass.begin].position);
  return {.rows = rows,
          .visible_pairs = rows * before + rows * (rows + 1) / 2,
          .context = before + rows,
          .routed_rows = rows};
}

KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, const PromptRun& run, const Step& step,
                    std::span<const StagedModule> modules) {
  return StepCost(spec, weights, run.form, PassLoad(run, step.pass), step, modules);
}

}  // namespace moestro
