#include "common/model/binding.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/model/tensor_names.h"

namespace moestro {
namespace {

class Binder {
 public:
  explicit Binder(const WeightSegment& segment)
      : segment_(segment),
        spec_(segment.spec()),
        fits_cache_(segment.header().data_bytes <= sysconf(_SC_LEVEL3_CACHE_SIZE)) {}

  absl::StatusOr<ModelWeights> Bind() const {
    ModelWeights weights;
    MOE_ASSIGN_OR_RETURN(const TensorView embedding,
                         Find(kEmbeddingName, TensorLayout::kRowMajor, spec_.vocab_size, spec_.hidden_size));
    if (embedding.dtype != DType::kBF16) return WrongType(embedding, "BF16");
    weights.embedding = reinterpret_cast<const uint16_t*>(embedding.data);
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
      LayerWeights& bound = weights.layers.emplace_back();
      MOE_RETURN_IF_ERROR(BindAttention(layer, &bound.attention));
      MOE_RETURN_IF_ERROR(BindFeedForward(layer, &bound.feed_forward));
    }
    MOE_RETURN_IF_ERROR(Floats(kFinalNormName, 1, spec_.hidden_size, &weights.final_norm));
    MOE_RETURN_IF_ERROR(Linear(kHeadName, spec_.vocab_size, spec_.hidden_size, &weights.head));
    return weights;
  }

 private:
  static absl::Status WrongType(const TensorView& view, const char* expected) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor '%s' is %s, expected %s", view.name, DTypeName(view.dtype), expected));
  }

  absl::StatusOr<TensorView> Find(const std::string& name, TensorLayout layout, int64_t rows, int64_t cols) const {
    MOE_ASSIGN_OR_RETURN(const TensorView view, segment_.Find(name));
    if (view.rows != rows || view.cols != cols) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor '%s' has shape [%d, %d], the model's configuration wants "
                          "[%d, %d]",
                          name, view.rows, view.cols, rows, cols));
    }
    if (view.layout != layout) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor '%s' should be %s", name, layout == TensorLayout::kPacked ? "packed" : "row-major"));
    }
    return view;
  }

  absl::Status Linear(const std::string& name, int64_t rows, int64_t cols, PackedMatrix* matrix) const {
    MOE_ASSIGN_OR_RETURN(const TensorView view, Find(name, TensorLayout::kPacked, rows, cols));
    if (view.dtype == DType::kF32) return WrongType(view, "F8_E4M3 or BF16");
    *matrix = view.packed();
    matrix->cached = fits_cache_;
    return absl::OkStatus();
  }

  absl::Status Floats(const std::string& name, int64_t rows, int64_t cols, const float** values) const {
    MOE_ASSIGN_OR_RETURN(const TensorView view, Find(name, TensorLayout::kRowMajor, rows, cols));
    if (view.dtype != DType::kF32) return WrongType(view, "F32");
    *values = reinterpret_cast<const float*>(view.data);
    return absl::OkStatus();
  }

  absl::Status BindQueries(int64_t layer, AttentionWeights* w) const {
    const int64_t outputs = spec_.num_heads * spec_.qk_head_dim();
    if (spec_.q_lora_rank == 0) {
      return Linear(LayerTensorName(layer, "self_attn.q_proj.weight"), outputs, spec_.hidden_size, &w->q_b);
    }
    MOE_RETURN_IF_ERROR(
        Linear(LayerTensorName(layer, "self_attn.q_a_proj.weight"), spec_.q_lora_rank, spec_.hidden_size, &w->q_a));
    MOE_RETURN_IF_ERROR(
        Floats(LayerTensorName(layer, "self_attn.q_a_layernorm.weight"), 1, spec_.q_lora_rank, &w->q_a_norm));
    return Linear(LayerTensorName(layer, "self_attn.q_b_proj.weight"), outputs, spec_.q_lora_rank, &w->q_b);
  }

  absl::Status BindAttention(int64_t layer, AttentionWeights* w) const {
    MOE_RETURN_IF_ERROR(Floats(LayerTensorName(layer, "input_layernorm.weight"), 1, spec_.hidden_size, &w->input_norm));
    MOE_RETURN_IF_ERROR(BindQueries(layer, w));
    MOE_RETURN_IF_ERROR(spec_.has_grouped_queries() ? BindKeysValues(layer, w) : BindLatents(layer, w));
    return Linear(LayerTensorName(layer, "self_attn.o_proj.weight"), spec_.hidden_size,
                  spec_.num_heads * spec_.v_head_dim, &w->o);
  }

  absl::Status BindKeysValues(int64_t layer, AttentionWeights* w) const {
    const int64_t dim = spec_.v_head_dim;
    const int64_t outputs = spec_.num_kv_heads * dim;
    MOE_RETURN_IF_ERROR(Linear(LayerTensorName(layer, "self_attn.k_proj.weight"), outputs, spec_.hidden_size, &w->k));
    MOE_RETURN_IF_ERROR(Linear(LayerTensorName(layer, "self_attn.v_proj.weight"), outputs, spec_.hidden_size, &w->v));
    MOE_RETURN_IF_ERROR(Floats(LayerTensorName(layer, "self_attn.q_norm.weight"), 1, dim, &w->q_norm));
    return Floats(LayerTensorName(layer, "self_attn.k_norm.weight"), 1, dim, &w->k_norm);
  }

  absl::Status BindLatents(int64_t layer, AttentionWeights* w) const {
    const int64_t heads = spec_.num_heads;
    const int64_t latent = spec_.kv_lora_rank;
    const int64_t head_outputs = spec_.qk_nope_head_dim + spec_.v_head_dim;
    MOE_RETURN_IF_ERROR(Linear(LayerTensorName(layer, "self_attn.kv_a_proj_with_mqa.weight"), spec_.kv_dim(),
                               spec_.hidden_size, &w->kv_a));
    MOE_RETURN_IF_ERROR(Floats(LayerTensorName(layer, "self_attn.kv_a_layernorm.weight"), 1, latent, &w->kv_a_norm));
    MOE_RETURN_IF_ERROR(
        Linear(LayerTensorName(layer, "self_attn.kv_b_proj.weight"), heads * head_outputs, latent, &w->kv_b));
    return Linear(LayerTensorName(layer, kKeyUpTransposedSuffix), heads * latent, spec_.qk_nope_head_dim,
                  &w->key_transposed);
  }

  // `prefix` ends before "gate_proj.weight".
  absl::Status BindMlp(const std::string& prefix, int64_t width, MlpWeights* w) const {
    MOE_RETURN_IF_ERROR(Linear(prefix + "gate_proj.weight", width, spec_.hidden_size, &w->gate));
    MOE_RETURN_IF_ERROR(Linear(prefix + "up_proj.weight", width, spec_.hidden_size, &w->up));
    return Linear(prefix + "down_proj.weight", spec_.hidden_size, width, &w->down);
  }

  absl::Status BindExperts(int64_t layer, FeedForwardWeights* w) const {
    MOE_RETURN_IF_ERROR(
        Floats(LayerTensorName(layer, "mlp.gate.weight"), spec_.num_experts, spec_.hidden_size, &w->router));
    if (spec_.softmax_router == 0) {
      MOE_RETURN_IF_ERROR(
          Floats(LayerTensorName(layer, "mlp.gate.e_score_correction_bias"), 1, spec_.num_experts, &w->bias));
    }
    w->experts.resize(spec_.num_experts);
    for (int64_t e = 0; e < spec_.num_experts; ++e) {
      MlpWeights& expert = w->experts[e];
      const int64_t width = spec_.moe_intermediate_size;
      MOE_RETURN_IF_ERROR(Linear(ExpertTensorName(layer, e, "gate_proj"), width, spec_.hidden_size, &expert.gate));
      MOE_RETURN_IF_ERROR(Linear(ExpertTensorName(layer, e, "up_proj"), width, spec_.hidden_size, &expert.up));
      MOE_RETURN_IF_ERROR(Linear(ExpertTensorName(layer, e, "down_proj"), spec_.hidden_size, width, &expert.down));
    }
    return absl::OkStatus();
  }

  absl::Status BindFeedForward(int64_t layer, FeedForwardWeights* w) const {
    MOE_RETURN_IF_ERROR(
        Floats(LayerTensorName(layer, "post_attention_layernorm.weight"), 1, spec_.hidden_size, &w->norm));
    if (!spec_.IsMoeLayer(layer)) return BindMlp(LayerTensorName(layer, "mlp."), spec_.intermediate_size, &w->always);
    MOE_RETURN_IF_ERROR(BindExperts(layer, w));
    if (spec_.num_shared_experts == 0) return absl::OkStatus();
    return BindMlp(LayerTensorName(layer, "mlp.shared_experts."), spec_.shared_intermediate_size(), &w->always);
  }

  const WeightSegment& segment_;
  const ModelSpec& spec_;
  const bool fits_cache_;  // whether all weights stay in the last-level cache from token to token
};

absl::Status Unusable(const char* field, int64_t value, const char* expected) {
  return absl::InvalidArgumentError(absl::StrFormat("model spec: %s is %d, expected %s", field, value, expected));
}

absl::Status CheckPositive(const ModelSpec& spec) {
  const std::pair<const char*, int64_t> fields[] = {{"hidden_size", spec.hidden_size},
                                                    {"num_layers", spec.num_layers},
                                                    {"num_heads", spec.num_heads},
                                                    {"v_head_dim", spec.v_head_dim},
                                                    {"qk_rope_head_dim", spec.qk_rope_head_dim},
                                                    {"vocab_size", spec.vocab_size},
                                                    {"max_position_embeddings", spec.max_position_embeddings}};
  for (const auto& [name, value] : fields) {
    if (value <= 0) return Unusable(name, value, "a positive number");
  }
  if (spec.q_lora_rank < 0) return Unusable("q_lora_rank", spec.q_lora_rank, "0 or more");
  if (spec.token_count <= 0 || spec.token_count > spec.vocab_size) {
    return Unusable("token_count", spec.token_count, "1 to vocab_size");
  }
  if (spec.first_dense_layers > 0 && spec.intermediate_size <= 0) {
    return Unusable("intermediate_size", spec.intermediate_size, "a positive number");
  }
  return absl::OkStatus();
}

absl::Status CheckGroupedQueries(const ModelSpec& spec) {
  if (spec.num_heads % spec.num_kv_heads != 0)
    return Unusable("num_kv_heads", spec.num_kv_heads, "a divisor of num_heads");
  if (spec.qk_rope_head_dim != spec.v_head_dim) {
    return Unusable("qk_rope_head_dim", spec.qk_rope_head_dim, "v_head_dim: with grouped queries whole heads rotate");
  }
  const std::pair<const char*, int64_t> absent[] = {{"q_lora_rank", spec.q_lora_rank},
                                                    {"kv_lora_rank", spec.kv_lora_rank},
                                                    {"qk_nope_head_dim", spec.qk_nope_head_dim}};
  for (const auto& [name, value] : absent) {
    if (value != 0) return Unusable(name, value, "0 with grouped queries");
  }
  return absl::OkStatus();
}

// Attention cuts kv_b_proj and its transposed key half into heads, and kernels start at whole groups of packed rows
// only.
absl::Status CheckLatents(const ModelSpec& spec) {
  const std::pair<const char*, int64_t> fields[] = {{"kv_lora_rank", spec.kv_lora_rank},
                                                    {"qk_nope_head_dim", spec.qk_nope_head_dim}};
  for (const auto& [name, value] : fields) {
    if (value <= 0 || value % kRowGroup != 0) return Unusable(name, value, "a positive multiple of 64");
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const ModelSpec& spec) {
  if (spec.num_kv_heads < 0) return Unusable("num_kv_heads", spec.num_kv_heads, "0 or more");
  MOE_RETURN_IF_ERROR(spec.has_grouped_queries() ? CheckGroupedQueries(spec) : CheckLatents(spec));
  if (spec.v_head_dim % kRowGroup != 0) return Unusable("v_head_dim", spec.v_head_dim, "a multiple of 64");
  if (spec.qk_rope_head_dim % 2 != 0) return Unusable("qk_rope_head_dim", spec.qk_rope_head_dim, "an even number");
  return absl::OkStatus();
}

absl::Status CheckRouting(const ModelSpec& spec) {
  if (spec.first_dense_layers >= spec.num_layers) return absl::OkStatus();
  if (spec.num_experts <= 0) return Unusable("num_experts", spec.num_experts, "a positive number");
  if (spec.moe_intermediate_size <= 0) {
    return Unusable("moe_intermediate_size", spec.moe_intermediate_size, "a positive number");
  }
  if (spec.num_shared_experts < 0) return Unusable("num_shared_experts", spec.num_shared_experts, "0 or more");
  if (spec.num_expert_groups <= 0 || spec.num_experts % spec.num_expert_groups != 0) {
    return Unusable("num_expert_groups", spec.num_expert_groups, "a divisor of num_experts");
  }
  if (spec.experts_topk_groups <= 0 || spec.experts_topk_groups > spec.num_expert_groups) {
    return Unusable("experts_topk_groups", spec.experts_topk_groups, "1 to num_expert_groups");
  }
  const int64_t reachable = spec.num_experts / spec.num_expert_groups * spec.experts_topk_groups;
  if (spec.experts_per_token <= 0 || spec.experts_per_token > reachable) {
    return Unusable("experts_per_token", spec.experts_per_token, "1 to the number of experts in the kept groups");
  }
  return absl::OkStatus();
}

absl::Status CheckYarn(const ModelSpec& spec) {
  if (!(spec.rope_theta > 1)) return absl::InvalidArgumentError("model spec: rope_theta must be greater than 1");
  if (spec.yarn.enabled == 0) return absl::OkStatus();
  if (!(spec.yarn.factor >= 1)) return absl::InvalidArgumentError("model spec: yarn.factor must be at least 1");
  if (!(spec.yarn.beta_fast > 0 && spec.yarn.beta_slow > 0)) {
    return absl::InvalidArgumentError("model spec: yarn.beta_fast and yarn.beta_slow must be positive");
  }
  if (spec.yarn.original_max_position_embeddings <= 0) {
    return Unusable("yarn.original_max_position_embeddings", spec.yarn.original_max_position_embeddings,
                    "a positive number");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSpec(const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckPositive(spec));
  MOE_RETURN_IF_ERROR(CheckHeads(spec));
  MOE_RETURN_IF_ERROR(CheckRouting(spec));
  return CheckYarn(spec);
}

absl::StatusOr<ModelWeights> BindWeights(const WeightSegment& segment) {
  MOE_RETURN_IF_ERROR(CheckSpec(segment.spec()));
  return Binder(segment).Bind();
}

}  // namespace moestro
