#include "common/model/binding.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace moestro::model {
namespace {

class Binder {
 public:
  explicit Binder(const weights::WeightSegment& segment)
      : segment_(segment),
        spec_(segment.spec()),
        fits_cache_(segment.header().data_bytes <= sysconf(_SC_LEVEL3_CACHE_SIZE)) {}

  absl::StatusOr<ModelWeights> Bind() const {
    ModelWeights weights;
    absl::Status status;
    ForEachTensor(spec_, weights, [&](const ModelTensor& tensor, auto& field) {
      if (status.ok()) status = Bind(tensor, field);
    });
    MOE_RETURN_IF_ERROR(status);
    return weights;
  }

 private:
  static absl::Status WrongType(const weights::TensorView& view, const char* expected) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor '%s' is %s, expected %s", view.name, DTypeName(view.dtype), expected));
  }

  absl::StatusOr<weights::TensorView> Find(const ModelTensor& tensor, weights::TensorLayout layout) const {
    MOE_ASSIGN_OR_RETURN(const weights::TensorView view, segment_.Find(tensor.name));
    if (view.rows != tensor.rows || view.cols != tensor.cols) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor '%s' has shape [%d, %d], the model's configuration expects "
                          "[%d, %d]",
                          tensor.name, view.rows, view.cols, tensor.rows, tensor.cols));
    }
    if (view.layout != layout) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s' should be %s", tensor.name, layout == weights::TensorLayout::kPacked ? "packed" : "row-major"));
    }
    return view;
  }

  absl::Status Bind(const ModelTensor& tensor, PackedMatrix& matrix) const {
    MOE_ASSIGN_OR_RETURN(const weights::TensorView view, Find(tensor, weights::TensorLayout::kPacked));
    if (view.dtype == DType::kF32) return WrongType(view, "any other type");
    matrix = view.packed();
    matrix.cached = fits_cache_;
    return absl::OkStatus();
  }

  absl::Status Bind(const ModelTensor& tensor, const float*& values) const {
    MOE_ASSIGN_OR_RETURN(const weights::TensorView view, Find(tensor, weights::TensorLayout::kRowMajor));
    if (view.dtype != DType::kF32) return WrongType(view, "F32");
    values = reinterpret_cast<const float*>(view.data);
    return absl::OkStatus();
  }

  absl::Status Bind(const ModelTensor& tensor, Embedding& embedding) const {
    MOE_ASSIGN_OR_RETURN(const weights::TensorView view, Find(tensor, weights::TensorLayout::kRowMajor));
    if (view.dtype == DType::kF32) return WrongType(view, "BF16, F16 or a format of blocks");
    embedding = {view.dtype, view.data};
    return absl::OkStatus();
  }

  const weights::WeightSegment& segment_;
  const weights::ModelSpec& spec_;
  const bool fits_cache_;  // whether all weights stay in the last-level cache between tokens
};

absl::Status Unusable(const char* field, int64_t value, const char* expected) {
  return absl::InvalidArgumentError(absl::StrFormat("model spec: %s is %d, expected %s", field, value, expected));
}

absl::Status CheckPositive(const weights::ModelSpec& spec) {
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
  if (spec.first_dense_layers < 0) return Unusable("first_dense_layers", spec.first_dense_layers, "0 or more");
  if (spec.num_moe_layers() < spec.num_layers && spec.intermediate_size <= 0) {
    return Unusable("intermediate_size", spec.intermediate_size, "a positive number");
  }
  return absl::OkStatus();
}

absl::Status CheckGroupedQueries(const weights::ModelSpec& spec) {
  if (spec.num_heads % spec.num_kv_heads != 0)
    return Unusable("num_kv_heads", spec.num_kv_heads, "a divisor of num_heads");
  if (spec.qk_rope_head_dim != spec.v_head_dim) {
    return Unusable("qk_rope_head_dim", spec.qk_rope_head_dim, "v_head_dim: with grouped queries a head has one size");
  }
  if (spec.rotary_dims < 0 || spec.rotary_dims > spec.v_head_dim || spec.rotary_dims % 2 != 0) {
    return Unusable("rotary_dims", spec.rotary_dims, "an even number up to v_head_dim");
  }
  if (spec.norms_of_all_heads != 0 && spec.heads_without_norms != 0) {
    return Unusable("norms_of_all_heads", spec.norms_of_all_heads, "0 without norms");
  }
  const bool has_windows = (spec.windowed_layers[0] | spec.windowed_layers[1]) != 0;
  if (spec.sliding_window < 0 || (spec.sliding_window > 0) != has_windows) {
    return Unusable("sliding_window", spec.sliding_window, "a positive number with windowed_layers, 0 without");
  }
  if (!(spec.clip_qkv >= 0)) return absl::InvalidArgumentError("model spec: clip_qkv must be 0 or more");
  const std::pair<const char*, int64_t> absent[] = {{"q_lora_rank", spec.q_lora_rank},
                                                    {"kv_lora_rank", spec.kv_lora_rank},
                                                    {"qk_nope_head_dim", spec.qk_nope_head_dim}};
  for (const auto& [name, value] : absent) {
    if (value != 0) return Unusable(name, value, "0 with grouped queries");
  }
  return absl::OkStatus();
}

// Attention cuts kv_b_proj and its transposed key half into heads, and kernels can only start at whole groups of packed
// rows.
absl::Status CheckLatents(const weights::ModelSpec& spec) {
  if (spec.rotary_dims != 0) return Unusable("rotary_dims", spec.rotary_dims, "0 with latents");
  if (spec.qkv_biases != 0) return Unusable("qkv_biases", spec.qkv_biases, "0 with latents");
  if (spec.sliding_window != 0) return Unusable("sliding_window", spec.sliding_window, "0 with latents");
  if (spec.attention_sinks != 0) return Unusable("attention_sinks", spec.attention_sinks, "0 with latents");
  const std::pair<const char*, int64_t> fields[] = {{"kv_lora_rank", spec.kv_lora_rank},
                                                    {"qk_nope_head_dim", spec.qk_nope_head_dim}};
  for (const auto& [name, value] : fields) {
    if (value <= 0 || value % kRowGroup != 0) return Unusable(name, value, "a positive multiple of 64");
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const weights::ModelSpec& spec) {
  if (spec.num_kv_heads < 0) return Unusable("num_kv_heads", spec.num_kv_heads, "0 or more");
  MOE_RETURN_IF_ERROR(spec.attention_kind() == weights::AttentionKind::kGroupedQueries ? CheckGroupedQueries(spec)
                                                                                       : CheckLatents(spec));
  if (spec.v_head_dim % kRowGroup != 0) return Unusable("v_head_dim", spec.v_head_dim, "a multiple of 64");
  if (spec.qk_rope_head_dim % 2 != 0) return Unusable("qk_rope_head_dim", spec.qk_rope_head_dim, "an even number");
  return absl::OkStatus();
}

absl::Status CheckRouting(const weights::ModelSpec& spec) {
  if (spec.num_moe_layers() == 0) return absl::OkStatus();
  if (spec.num_experts <= 0) return Unusable("num_experts", spec.num_experts, "a positive number");
  if (spec.moe_intermediate_size <= 0) {
    return Unusable("moe_intermediate_size", spec.moe_intermediate_size, "a positive number");
  }
  if (spec.num_shared_experts < 0) return Unusable("num_shared_experts", spec.num_shared_experts, "0 or more");
  if (spec.shared_expert_width < 0) return Unusable("shared_expert_width", spec.shared_expert_width, "0 or more");
  if (spec.shared_expert_gate != 0 && spec.shared_intermediate_size() == 0) {
    return Unusable("shared_expert_gate", spec.shared_expert_gate, "0 without a shared expert");
  }
  if (!(spec.swiglu_limit >= 0) || (spec.swiglu_limit > 0 && !(spec.swiglu_alpha > 0))) {
    return absl::InvalidArgumentError(
        "model spec: swiglu_limit must be 0 or more, and swiglu_alpha positive if swiglu_limit is");
  }
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

absl::Status CheckYarn(const weights::ModelSpec& spec) {
  if (!(spec.rope_theta > 1)) return absl::InvalidArgumentError("model spec: rope_theta must be greater than 1");
  if (spec.yarn.enabled == 0 && spec.llama3_rope == 0) return absl::OkStatus();
  if (spec.llama3_rope != 0 && (spec.yarn.enabled != 0 || spec.yarn.beta_fast <= spec.yarn.beta_slow)) {
    return Unusable("llama3_rope", spec.llama3_rope, "0, or no YaRN and yarn.beta_fast greater than yarn.beta_slow");
  }
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

absl::Status CheckSpec(const weights::ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckPositive(spec));
  MOE_RETURN_IF_ERROR(CheckHeads(spec));
  MOE_RETURN_IF_ERROR(CheckRouting(spec));
  return CheckYarn(spec);
}

absl::StatusOr<ModelWeights> BindWeights(const weights::WeightSegment& segment) {
  MOE_RETURN_IF_ERROR(CheckSpec(segment.spec()));
  return Binder(segment).Bind();
}

}  // namespace moestro::model
