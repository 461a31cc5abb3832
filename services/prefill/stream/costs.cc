#include "services/prefill/stream/costs.h"

#include <algorithm>

namespace moestro {
namespace {

using device::KernelCost;

double Numbers(const PackedMatrix& matrix) {
  return static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
}
double Bytes(const PackedMatrix& matrix) { return Numbers(matrix) * static_cast<double>(DTypeBytes(matrix.dtype)); }

// A product of `rows` rows with the weights. Inputs are BF16, outputs F32.
void AddLinear(const PackedMatrix& matrix, double rows, KernelCost& cost) {
  if (matrix.rows == 0) return;
  (matrix.dtype == DType::kF8E4M3 ? cost.fp8_flops : cost.bf16_flops) += 2 * rows * Numbers(matrix);
  cost.memory_bytes += Bytes(matrix) + rows * static_cast<double>(2 * matrix.cols + 4 * matrix.rows);
  ++cost.kernels;
}

void AddMlp(const MlpWeights& mlp, double rows, KernelCost& cost) {
  AddLinear(mlp.gate, rows, cost);
  AddLinear(mlp.up, rows, cost);
  AddLinear(mlp.down, rows, cost);
  ++cost.kernels;  // silu(gate) * up
}

void AddAttention(const ModelSpec& spec, const AttentionWeights& w, const PromptRun& run, IndexRange pass,
                  KernelCost& cost) {
  const auto rows = static_cast<double>(pass.size());
  const auto before = static_cast<double>(run.rows[pass.begin].position);
  const auto heads = static_cast<double>(spec.num_heads);
  const double visible = rows * before + rows * (rows + 1) / 2;  // pairs of a query and a position
  AddLinear(w.q_a, rows, cost);
  AddLinear(w.q_b, rows, cost);
  AddLinear(w.kv_a, rows, cost);
  AddLinear(w.o, rows, cost);
  if (run.form == MlaForm::kAbsorbed) {
    AddLinear(w.kv_b, rows, cost);  // its key half transposed, on queries; its value half on what was attended
    cost.attention_flops += 2 * heads * static_cast<double>(spec.kv_dim() + spec.kv_lora_rank) * visible;
  } else {
    AddLinear(w.kv_b, before + rows, cost);
    cost.attention_flops += 2 * heads * static_cast<double>(spec.qk_head_dim() + spec.v_head_dim) * visible;
  }
  constexpr int kOthers = 6;  // norms, rotation, writing the cache, attention itself
  cost.kernels += kOthers;
}

}  // namespace

KernelCost StepCost(const ModelSpec& spec, const ModelWeights& weights, const PromptRun& run, const Step& step) {
  KernelCost cost{.kernels = 0};
  const IndexRange pass = run.PassRows(step.pass);
  const auto rows = static_cast<double>(pass.size());
  const auto hidden = static_cast<double>(spec.hidden_size);
  const LayerWeights* layer = step.layer < std::ssize(weights.layers) ? &weights.layers[step.layer] : nullptr;
  switch (step.kind) {
    case StepKind::kEmbed:
      cost.memory_bytes = rows * hidden * 6;
      cost.kernels = 1;
      break;
    case StepKind::kAttention:
      AddAttention(spec, layer->attention, run, pass, cost);
      break;
    case StepKind::kDense:
    case StepKind::kSharedExpert:
      AddMlp(layer->feed_forward.always, rows, cost);
      break;
    case StepKind::kRoute:
      cost.bf16_flops = 2 * rows * hidden * static_cast<double>(spec.num_experts);
      cost.memory_bytes = rows * hidden * 10;
      cost.kernels = 3;
      break;
    case StepKind::kExperts: {
      const auto experts = static_cast<double>(step.uses.size());
      const double routed = rows * static_cast<double>(spec.experts_per_token) / static_cast<double>(spec.num_experts);
      AddMlp(layer->feed_forward.experts.front(), routed, cost);
      cost.memory_bytes += routed * hidden * 8;  // gather, add up
      cost.fp8_flops *= experts;
      cost.bf16_flops *= experts;
      cost.memory_bytes *= experts;
      break;  // grouped products: launches do not grow with the experts
    }
    case StepKind::kHead:
      cost.memory_bytes = Bytes(weights.head) / std::max<double>(1, static_cast<double>(step.uses.size()));
      cost.kernels = 1;
      break;
  }
  return cost;
}

}  // namespace moestro
