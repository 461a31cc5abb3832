#include "services/cli/make_model/tensor_plan.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"

namespace moestro {
namespace {

// A linear layer with gain g turns inputs of deviation 1 into outputs of deviation g: its weights have deviation
// g / sqrt(inputs). The gains keep the model well conditioned, so that engines which round differently agree.
// Queries: attention scores then have a deviation of about 1.5 with the softmax scale of the preset's YaRN factor, so
// that attention is neither uniform nor a copy of one position.
constexpr double kQueryGain = 0.6;
// Router logits spread the sigmoid over most of (0, 1) without saturating it.
constexpr double kRouterGain = 1.6;
// What a block adds to the residual stream (deviation 1 at first) is about half of it, so that no block is idle and
// none magnifies the rounding noise of the blocks before it. The four or eight weighted experts of a token add up to
// more than one MLP does, and a swapped expert must not change everything.
constexpr double kAttentionOutGain = 0.6;
constexpr double kMlpDownGain = 0.65;
constexpr double kExpertDownGain = 0.4;
// Logits of deviation 3.5: the best token leads by about one, far above the rounding noise of BF16 activations.
constexpr double kHeadGain = 3.5;
// Large enough to change which experts are chosen, of both signs, and it widens the distances between scores, while
// rounding noise stays as it is. Small enough that every expert still gets tokens: with 0.3 some get none.
constexpr double kBiasDeviation = 0.15;
constexpr double kNormDeviation = 0.1;  // around 1

class Planner {
 public:
  explicit Planner(const Geometry& geometry) : g_(geometry) {}

  std::vector<PlannedTensor> Plan() && {
    Normal("model.embed_tokens.weight", {g_.vocab_rows, g_.hidden}, 0, 1);
    for (int64_t layer = 0; layer < g_.layers; ++layer) DecoderLayer(layer, layer >= g_.dense_layers);
    Norm("model.norm.weight", g_.hidden);
    Normal("lm_head.weight", {g_.vocab_rows, g_.hidden}, 0, Deviation(kHeadGain, g_.hidden));
    if (g_.mtp_layers > 0) PredictionLayer(g_.layers);
    return std::move(tensors_);
  }

 private:
  static double Deviation(double gain, int64_t inputs) { return gain / std::sqrt(static_cast<double>(inputs)); }

  PlannedTensor& Add(const std::string& name, DType dtype, std::vector<int64_t> shape, Recipe recipe) {
    PlannedTensor& tensor = tensors_.emplace_back();
    tensor.name = name;
    tensor.key = name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.recipe = recipe;
    return tensor;
  }

  PlannedTensor& Normal(const std::string& name, std::vector<int64_t> shape, double mean, double deviation,
                        DType dtype = DType::kBF16) {
    PlannedTensor& tensor = Add(name, dtype, std::move(shape), Recipe::kNormal);
    tensor.mean = mean;
    tensor.deviation = deviation;
    return tensor;
  }

  void Norm(const std::string& name, int64_t size) { Normal(name, {size}, 1, kNormDeviation); }

  // A weight that the published checkpoint stores in FP8.
  void Linear(const std::string& name, int64_t outputs, int64_t inputs, double gain = 1) {
    const double deviation = Deviation(gain, inputs);
    if (!g_.fp8) {
      Add(name, DType::kBF16, {outputs, inputs}, Recipe::kDequantised).deviation = deviation;
      return;
    }
    Add(name, DType::kF8E4M3, {outputs, inputs}, Recipe::kFp8Codes).deviation = deviation;
    Add(absl::StrCat(name, "_scale_inv"), DType::kF32, {CeilDiv(outputs, kScaleBlock), CeilDiv(inputs, kScaleBlock)},
        Recipe::kBlockScales)
        .deviation = deviation;
  }

  void Mlp(const std::string& prefix, int64_t width, double down_gain) {
    Linear(prefix + "gate_proj.weight", width, g_.hidden);
    Linear(prefix + "up_proj.weight", width, g_.hidden);
    Linear(prefix + "down_proj.weight", g_.hidden, width, down_gain);
  }

  void GroupedAttention(const std::string& prefix) {
    const int64_t dim = g_.v_head_dim;
    Linear(prefix + "q_proj.weight", g_.heads * dim, g_.hidden);
    Norm(prefix + "q_norm.weight", dim);
    Linear(prefix + "k_proj.weight", g_.kv_heads * dim, g_.hidden);
    Norm(prefix + "k_norm.weight", dim);
    Linear(prefix + "v_proj.weight", g_.kv_heads * dim, g_.hidden);
    Linear(prefix + "o_proj.weight", g_.hidden, g_.heads * dim, kAttentionOutGain);
  }

  void Attention(const std::string& prefix) {
    if (g_.kv_heads > 0) return GroupedAttention(prefix);
    Linear(prefix + "q_a_proj.weight", g_.q_lora_rank, g_.hidden);
    Norm(prefix + "q_a_layernorm.weight", g_.q_lora_rank);
    Linear(prefix + "q_b_proj.weight", g_.heads * g_.qk_head_dim(), g_.q_lora_rank, kQueryGain);
    Linear(prefix + "kv_a_proj_with_mqa.weight", g_.kv_lora_rank + g_.qk_rope_head_dim, g_.hidden);
    Norm(prefix + "kv_a_layernorm.weight", g_.kv_lora_rank);
    Linear(prefix + "kv_b_proj.weight", g_.heads * (g_.qk_nope_head_dim + g_.v_head_dim), g_.kv_lora_rank);
    Linear(prefix + "o_proj.weight", g_.hidden, g_.heads * g_.v_head_dim, kAttentionOutGain);
  }

  void Moe(const std::string& prefix) {
    Normal(prefix + "gate.weight", {g_.experts, g_.hidden}, 0, Deviation(kRouterGain, g_.hidden));
    const bool deepseek = g_.kv_heads == 0;
    if (deepseek) Normal(prefix + "gate.e_score_correction_bias", {g_.experts}, 0, kBiasDeviation, DType::kF32);
    for (int64_t expert = 0; expert < g_.experts; ++expert) {
      Mlp(absl::StrCat(prefix, "experts.", expert, "."), g_.moe_intermediate, kExpertDownGain);
    }
    if (deepseek) Mlp(prefix + "shared_experts.", g_.moe_intermediate, kMlpDownGain);
  }

  void DecoderLayer(int64_t layer, bool moe) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Norm(prefix + "input_layernorm.weight", g_.hidden);
    Attention(prefix + "self_attn.");
    Norm(prefix + "post_attention_layernorm.weight", g_.hidden);
    if (moe) {
      Moe(prefix + "mlp.");
    } else {
      Mlp(prefix + "mlp.", g_.intermediate, kMlpDownGain);
    }
  }

  // The multi-token-prediction layer repeats embedding and head, as the published checkpoint does.
  void PredictionLayer(int64_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Normal(prefix + "embed_tokens.weight", {g_.vocab_rows, g_.hidden}, 0, 1).key = "model.embed_tokens.weight";
    Norm(prefix + "enorm.weight", g_.hidden);
    Norm(prefix + "hnorm.weight", g_.hidden);
    Normal(prefix + "eh_proj.weight", {g_.hidden, 2 * g_.hidden}, 0, Deviation(1, 2 * g_.hidden));
    DecoderLayer(layer, /*moe=*/true);
    Norm(prefix + "shared_head.norm.weight", g_.hidden);
    Normal(prefix + "shared_head.head.weight", {g_.vocab_rows, g_.hidden}, 0, Deviation(kHeadGain, g_.hidden)).key =
        "lm_head.weight";
  }

  const Geometry& g_;
  std::vector<PlannedTensor> tensors_;
};

}  // namespace

int64_t PlannedTensor::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

std::vector<PlannedTensor> PlanTensors(const Geometry& geometry) { return Planner(geometry).Plan(); }

}  // namespace moestro
